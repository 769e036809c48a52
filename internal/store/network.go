package store

import (
	"encoding/json"
	"errors"

	"github.com/modbox/modbox/internal/sandbox"
)

// marshalPorts encodes published ports as a JSON array; nil gives an empty array.
func marshalPorts(ports []sandbox.PublishedPort) (string, error) {
	if len(ports) == 0 {
		return "[]", nil
	}
	b, err := json.Marshal(ports)
	return string(b), err
}

// unmarshalPorts reverses marshalPorts, into sb.
func unmarshalPorts(s string, sb *sandbox.Sandbox) error {
	if s == "[]" {
		return nil
	}
	var ports []sandbox.PublishedPort
	if err := json.Unmarshal([]byte(s), &ports); err != nil {
		return errors.New("damaged JSON") // without the text: labels are secrets
	}
	setPorts(sb, ports)
	return nil
}

// marshalRules encodes settings of a network; none as "".
func marshalRules(r sandbox.NetworkRules) string {
	if r.Equal(&sandbox.NetworkRules{}) {
		return ""
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts and numbers: cannot fail
	}
	return string(b)
}

// unmarshalRules reverses marshalRules, into n.
func unmarshalRules(s string, n *sandbox.Network) error {
	if s == "" {
		return nil
	}
	var r sandbox.NetworkRules
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		return err
	}
	n.AllowOut, n.DenyOut, n.RequestHost, n.HTTPSPorts = r.Allow, r.Deny, r.RequestHost, r.HTTPSPorts
	return nil
}

// setPorts replaces the published ports of sb.
func setPorts(sb *sandbox.Sandbox, ports []sandbox.PublishedPort) {
	sb.Published, sb.Network.Ports = ports, nil
	for _, p := range ports {
		sb.Network.Ports = append(sb.Network.Ports, p.Port)
	}
}
