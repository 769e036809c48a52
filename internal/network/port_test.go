package network

import (
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestCheckPorts(t *testing.T) {
	many := make([]uint16, sandbox.PortsMax+1)
	for i := range many {
		many[i] = uint16(3000 + i)
	}
	for name, tc := range map[string]struct {
		ports []uint16
		ok    bool
	}{
		"none":       {nil, true},
		"as_allowed": {many[1:], true},
		"too_many":   {many, false},
		"zero":       {[]uint16{80, 0}, false},
		"agents":     {[]uint16{driver.AgentPort}, false},
		"twice":      {[]uint16{80, 81, 80}, false},
	} {
		if err := CheckPorts("ports", tc.ports); (err == nil) != tc.ok || err != nil && sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("CheckPorts(%s) = %v, want none: %v", name, err, tc.ok)
		}
	}
}

func TestPortsMessage(t *testing.T) {
	ports := []sandbox.PublishedPort{{Port: 80, Label: "secret", Access: sandbox.PortPublic}, {Port: 81, Label: "hidden", Access: sandbox.PortPrivate}}
	if got, want := portsMessage(ports), "; it publishes 80 (public), 81 (private)"; got != want {
		t.Errorf("portsMessage() = %q, want %q", got, want)
	}
	if got := portsMessage(slices.Clone(ports[:0])); got != "" {
		t.Errorf("portsMessage() of no port = %q", got)
	}
}
