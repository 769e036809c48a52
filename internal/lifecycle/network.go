package lifecycle

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Network makes the other side of sandboxes' interfaces. It is safe for concurrent use.
type Network interface {
	// Attach makes the gateway of a sandbox and the interface to plug into its box.
	Attach(id sandbox.ID) (box.Gateway, driver.NIC, error)
	// Nameserver is the address at which gateways answer DNS.
	Nameserver() netip.Addr
}

// NetworkChange says what to change of a sandbox's network; nil fields stay.
type NetworkChange struct {
	// Enabled switches its interface on or off.
	Enabled *bool
	// Ports are those it publishes from now on.
	Ports *[]uint16
}

// checkPorts checks the ports in a field that a caller wants published.
func checkPorts(field string, ports []uint16) error {
	if len(ports) > sandbox.PortsMax {
		return sandbox.InvalidField(field, "must be at most %d", sandbox.PortsMax)
	}
	for i, port := range ports {
		switch {
		case port == 0:
			return sandbox.InvalidField(field, "must be 1 to 65535")
		case port == driver.AgentPort:
			return sandbox.InvalidField(field, "%d is the agent's own port", port)
		case slices.Contains(ports[:i], port):
			return sandbox.InvalidField(field, "has %d twice", port)
		}
	}
	return nil
}

// NetworkOffered returns an error when this server cannot give sandboxes a network.
func (s *Service) NetworkOffered() error {
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

// SetNetwork changes the network of a running or paused sandbox; a paused sandbox gets its
// interface when it is resumed. Switching it off cuts every connection. It returns the changed
// sandbox. Errors: Invalid, naming the field; NotFound; NotRunning while it is provisioning; Ended;
// Unsupported; Unavailable when it could not be connected now: the server tries again.
func (s *Service) SetNetwork(ctx context.Context, c sandbox.Caller, ref string, change NetworkChange) (sandbox.Sandbox, error) {
	if err := s.ready(); err != nil {
		return sandbox.Sandbox{}, err
	}
	if change.Ports != nil {
		if err := checkPorts("ports", *change.Ports); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if change.Enabled != nil && *change.Enabled {
		if err := s.NetworkOffered(); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if change.Enabled != nil {
		audit.FromContext(ctx).Detail("network", strconv.FormatBool(*change.Enabled))
	}
	if change.Ports != nil {
		audit.FromContext(ctx).Detail("ports", fmt.Sprint(*change.Ports))
	}
	b, sb, err := s.find(ctx, c, ref)
	switch {
	case err != nil:
		return sandbox.Sandbox{}, err
	case b == nil:
		return sandbox.Sandbox{}, box.StateError(&sb)
	}
	err = b.Exclusively(ctx, box.Network, func() error { return s.setNetwork(b, change) })
	return b.Sandbox(), err
}

// setNetwork records a change and makes it true.
func (s *Service) setNetwork(b *entry, change NetworkChange) error {
	sb := b.Sandbox()
	if sb.State != sandbox.Running && sb.State != sandbox.Paused {
		return box.StateError(&sb)
	}
	sb, err := s.recordNetwork(b, func(sb *sandbox.Sandbox) error {
		if change.Enabled != nil {
			sb.Network.Enabled = *change.Enabled
		}
		if change.Ports != nil {
			sb.Publish(*change.Ports, time.Now().UTC())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if sb.State == sandbox.Paused {
		return nil
	}
	if !sb.Network.Enabled {
		return s.unplug(b)
	}
	if b.Link.Connected() {
		return nil
	}
	return s.reconnect(b)
}

// recordNetwork records what change makes of the sandbox's network and published
// ports, if that is anything new, and returns the sandbox as it is then.
func (s *Service) recordNetwork(b *entry, change func(*sandbox.Sandbox) error) (sandbox.Sandbox, error) {
	b.Lock()
	defer b.Unlock()
	if err := b.Over(); err != nil {
		return sandbox.Sandbox{}, err
	}
	before := b.Sandbox()
	sb := before
	sb.Published = slices.Clone(before.Published)
	if err := change(&sb); err != nil {
		return before, err
	}
	if sb.Network.Enabled == before.Network.Enabled && slices.Equal(sb.Published, before.Published) {
		return before, nil
	}
	message := "it has no access to the internet"
	if sb.Network.Enabled {
		message = "it has access to the internet"
	}
	ev := sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventNetwork, Message: message + portsMessage(sb.Published),
		Data: map[string]string{"enabled": strconv.FormatBool(sb.Network.Enabled), "ports": fmt.Sprint(sb.Network.Ports)},
	}
	sb, err := s.store.SetNetwork(s.ctx, b.ID, sb.Network.Enabled, sb.Published, ev)
	if err != nil {
		return before, err
	}
	b.Set(sb)
	s.boxes.publish(b)
	return b.Sandbox(), nil
}

// reconnect gives a running box its interface and tells its agent.
func (s *Service) reconnect(b *entry) error {
	ctx, cancel := context.WithTimeout(b.Context(), s.cfg.StartTimeout)
	defer cancel()
	if err := s.connect(ctx, b); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox could not be connected to its network; it is tried again soon")
	}
	return s.tellAgent(ctx, b)
}

// reconnectLater gives a box of a previous server its interface, and configures its agent in the
// background, which may take long. The sweep repeats failed attempts.
func (s *Service) reconnectLater(ctx context.Context, b *entry) {
	if !b.Sandbox().Network.Enabled {
		return
	}
	if err := s.connect(ctx, b); err != nil {
		s.log.Error("sandbox is without its network", "sandbox", b.ID, "error", err)
		return
	}
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
		defer cancel()
		if err := s.tellAgent(ctx, b); err != nil && b.Context().Err() == nil {
			s.log.Warn("agent not told of its network", "sandbox", b.ID, "error", err)
		}
	})
}

// tellAgent has the agent of a running box know what its sandbox is now.
func (s *Service) tellAgent(ctx context.Context, b *entry) error {
	b.envMu.Lock()
	defer b.envMu.Unlock()
	sb := b.Sandbox()
	img, _, err := s.images.Resolve(ctx, sb.ImageDigest)
	if err != nil {
		return fmt.Errorf("image of sandbox %s: %w", b.ID, err)
	}
	return b.Explain(ctx, b.Agent.Configure(ctx, s.agentConfig(&sb, &img)))
}

// connect gives a box that was started its interface, when its sandbox is to have one.
func (s *Service) connect(ctx context.Context, b *entry) error {
	if !b.Sandbox().Network.Enabled {
		return nil
	}
	return s.plug(ctx, b)
}

// plug gives a box that was started an interface.
func (s *Service) plug(ctx context.Context, b *entry) error {
	n, err := s.networker()
	if err != nil {
		// Not Unsupported: that would be said of what was saved of the sandbox.
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox has a network, which this server cannot give it")
	}
	gateway, nic, err := s.network.Attach(b.ID)
	if err != nil {
		return err
	}
	if err := n.Plug(ctx, b.ID, nic); err != nil {
		gateway.Close()
		return fmt.Errorf("plug network into box %s: %w", b.ID, err)
	}
	b.Link.Connect(gateway)
	return nil
}

// unplug removes the interface of a running box, so that nothing leaves the box any more, even if
// it is hostile.
func (s *Service) unplug(b *entry) error {
	b.Link.Disconnect(false)
	n, err := s.networker()
	if err != nil {
		return nil // it never had one from this server
	}
	ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
	defer cancel()
	if err := n.Unplug(ctx, b.ID); err != nil {
		s.log.Warn("interface of a sandbox not switched off; it leads nowhere", "sandbox", b.ID, "error", err)
	}
	return nil
}

// agentNetwork returns the network configuration for the agent of a sandbox; nil for none.
func (s *Service) agentNetwork(sb *sandbox.Sandbox) *agentapi.Network {
	if !sb.Network.Enabled || s.network == nil {
		return nil
	}
	return &agentapi.Network{Nameserver: s.network.Nameserver().String(), CA: string(s.cfg.NetworkCA)}
}

// mendNetwork connects a running sandbox again that should be and is not.
func (s *Service) mendNetwork(b *entry) {
	err := b.Exclusively(b.Context(), box.Network, func() error { return s.setNetwork(b, NetworkChange{}) })
	if err != nil && b.Context().Err() == nil {
		s.log.Error("sandbox is without its network, trying again soon", "sandbox", b.ID, "error", err)
	}
}
