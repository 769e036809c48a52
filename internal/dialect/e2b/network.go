package e2b

import (
	"net/http"
	"slices"

	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

// egress returns the network that the settings give a sandbox: none if they deny everything. Errors:
// Invalid, naming a field that begins with prefix.
func (in *networkInput) egress(prefix string, allowInternet *bool) (sandbox.Network, error) {
	switch {
	case given(in.EgressProxy):
		return sandbox.Network{}, absentField(prefix + "egressProxy")
	case given(in.Rules):
		return sandbox.Network{}, absentField(prefix + "rules")
	}
	deny := append([]string{}, in.DenyOut...) // not nil: here allowed destinations alone deny nothing
	if allowInternet != nil && !*allowInternet && !slices.Contains(deny, netrule.Everything) {
		deny = append(deny, netrule.Everything)
	}
	rules, err := netrule.Parse(netrule.List{Field: prefix + "allowOut", Entries: in.AllowOut}, netrule.List{Field: prefix + "denyOut", Entries: deny})
	if err != nil {
		return sandbox.Network{}, err
	}
	return sandbox.Network{
		Enabled:  len(in.AllowOut) > 0 || !slices.Contains(rules.DenyOut(), netrule.Everything),
		AllowOut: rules.AllowOut(), DenyOut: append([]string{}, rules.DenyOut()...),
	}, nil
}

// requests adds to a network how requests reach its servers. Errors: Invalid, naming a field that begins with prefix.
func (in *networkInput) requests(prefix string, n *sandbox.Network) error {
	for _, port := range in.HTTPSPorts {
		if port < 1 || port > 65535 {
			return sandbox.InvalidField(prefix+"httpsPorts", "must be 1 to 65535")
		}
		n.HTTPSPorts = append(n.HTTPSPorts, uint16(port))
	}
	if err := network.CheckPorts(prefix+"httpsPorts", n.HTTPSPorts); err != nil {
		return err
	}
	n.RequestHost = in.MaskRequestHost
	return network.CheckHost(prefix+"maskRequestHost", n.RequestHost)
}

// networkOf returns the settings of a sandbox's network.
func networkOf(sb *sandbox.Sandbox) networkOutput {
	out := networkOutput{
		AllowPublicTraffic: Public(sb), AllowOut: sb.Network.AllowOut, DenyOut: sb.Network.DenyOut,
		MaskRequestHost: sb.Network.RequestHost, HTTPSPorts: sb.Network.HTTPSPorts,
	}
	if !sb.Network.Enabled {
		out.AllowOut, out.DenyOut = nil, []string{netrule.Everything}
	}
	return out
}

func (s *sandboxes) changeNetwork(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[struct {
		networkInput
		AllowInternet *bool `json:"allow_internet_access"`
	}](w, r)
	if err != nil {
		return err
	}
	if in.MaskRequestHost != "" {
		return fixedField("maskRequestHost")
	}
	if len(in.HTTPSPorts) > 0 {
		return fixedField("httpsPorts")
	}
	n, err := in.egress("", in.AllowInternet)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	change := network.Change{Enabled: &n.Enabled, AllowOut: &n.AllowOut, DenyOut: &n.DenyOut}
	if _, err := s.svc.Networks().Set(r.Context(), caller(r.Context()), string(sb.ID), change); err != nil {
		return err
	}
	return answerNothing(w)
}

func fixedField(name string) error {
	return sandbox.InvalidField(name, "stays as the create gave it; leave it out")
}
