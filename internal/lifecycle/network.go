package lifecycle

import (
	"slices"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Network makes the other side of sandboxes' interfaces. It is safe for concurrent use.
type Network interface {
	// Attach makes the gateway of a sandbox and the interface to plug into its box.
	Attach(id sandbox.ID) (Gateway, driver.NIC, error)
}

// Gateway is the other side of one sandbox's interface. It is safe for concurrent use.
type Gateway interface {
	// Traffic returns the bytes that the sandbox sent and received so far, also
	// after Close.
	Traffic() (sent, received int64)
	// Close cuts every connection at once. Idempotent.
	Close()
}

// checkPorts checks the ports a caller wants published.
func checkPorts(ports []uint16) error {
	if len(ports) > sandbox.PortsMax {
		return sandbox.InvalidField("network.ports", "must be at most %d", sandbox.PortsMax)
	}
	for i, port := range ports {
		switch {
		case port == 0:
			return sandbox.InvalidField("network.ports", "must be 1 to 65535")
		case port == driver.AgentPort:
			return sandbox.InvalidField("network.ports", "%d is the agent's own port", port)
		case slices.Contains(ports[:i], port):
			return sandbox.InvalidField("network.ports", "has %d twice", port)
		}
	}
	return nil
}

// networkOffered returns an error when this server cannot give sandboxes a network.
func (s *Service) networkOffered() error {
	_, err := s.networker()
	return err
}

func (s *Service) networker() (driver.Networker, error) {
	n, ok := s.driver.(driver.Networker)
	if !ok || !s.driver.Capabilities().Network || s.network == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server cannot give sandboxes a network")
	}
	return n, nil
}
