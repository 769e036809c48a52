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

// setPorts replaces the published ports of sb.
func setPorts(sb *sandbox.Sandbox, ports []sandbox.PublishedPort) {
	sb.Published, sb.Network.Ports = ports, nil
	for _, p := range ports {
		sb.Network.Ports = append(sb.Network.Ports, p.Port)
	}
}
