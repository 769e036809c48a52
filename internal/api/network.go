package api

import (
	"github.com/modbox/modbox/internal/api/wire"
	"github.com/modbox/modbox/internal/sandbox"
)

// network reads what a request asks for.
func network(n *wire.Network) (sandbox.Network, error) {
	if n == nil {
		return sandbox.Network{}, nil
	}
	list, err := ports(n.Ports)
	return sandbox.Network{Enabled: n.Enabled, Ports: list}, err
}

func ports(numbers []int) ([]uint16, error) {
	var list []uint16
	for _, n := range numbers {
		if n < 1 || n > 65535 {
			return nil, sandbox.InvalidField("network.ports", "must be 1 to 65535")
		}
		list = append(list, uint16(n))
	}
	return list, nil
}

func (s *Server) formatNetwork(sb *sandbox.Sandbox) wire.SandboxNetwork {
	n := wire.SandboxNetwork{Enabled: sb.Network.Enabled, Ports: make([]wire.PublishedPort, 0, len(sb.Network.Ports))}
	for _, port := range sb.Network.Ports {
		n.Ports = append(n.Ports, wire.PublishedPort{Port: int(port), URL: s.cfg.PortURL(sb.HostLabel, port)})
	}
	return n
}
