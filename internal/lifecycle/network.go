package lifecycle

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Network makes the other side of sandboxes' interfaces. It is safe for concurrent use.
type Network interface {
	// Attach makes the gateway of a sandbox and the interface to plug into its box.
	Attach(id sandbox.ID) (Gateway, driver.NIC, error)
	// Nameserver is the address at which gateways answer DNS.
	Nameserver() netip.Addr
}

// Gateway is the other side of one sandbox's interface. It is safe for concurrent use.
type Gateway interface {
	// Traffic returns the bytes that the sandbox sent and received so far, also
	// after Close.
	Traffic() (sent, received int64)
	// Dial connects to a TCP port at the sandbox's interface; the connection outlives
	// ctx and breaks with Close. It fails, soon or with ctx, when no server listens there.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// Close cuts every connection at once. Idempotent.
	Close()
}

// NetworkChange says what to change of a sandbox's network; nil fields stay.
type NetworkChange struct {
	// Enabled switches its interface on or off.
	Enabled *bool
	// Ports are those it publishes from now on.
	Ports *[]uint16
}

// line is a box's end of the network: its gateway, and what went through those before.
type line struct {
	mu             sync.Mutex
	gateway        Gateway // guarded by mu; nil for none
	closed         bool    // nothing is connected any more; guarded by mu
	sent, received int64   // of the gateways before; guarded by mu
}

// connect replaces the gateway. One that comes too late is closed.
func (l *line) connect(g Gateway) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		g.Close()
		return
	}
	l.cut()
	l.gateway = g
}

// disconnect closes the gateway; for good when last is set.
func (l *line) disconnect(last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = l.closed || last
	l.cut()
}

// cut closes the gateway.
//
// Preconditions: l.mu is held.
func (l *line) cut() {
	if l.gateway == nil {
		return
	}
	l.gateway.Close()
	sent, received := l.gateway.Traffic()
	l.sent, l.received, l.gateway = l.sent+sent, l.received+received, nil
}

// traffic returns what went through all gateways of this server's time.
func (l *line) traffic() (sent, received int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gateway == nil {
		return l.sent, l.received
	}
	sent, received = l.gateway.Traffic()
	return l.sent + sent, l.received + received
}

// dial connects to a port at the sandbox's interface, when it has one and a
// server listens there.
func (l *line) dial(ctx context.Context, port uint16) (net.Conn, bool) {
	l.mu.Lock()
	g := l.gateway
	l.mu.Unlock()
	if g == nil {
		return nil, false
	}
	// What runs in the sandbox can have its interface not answer at all.
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := g.Dial(ctx, port)
	return c, err == nil
}

// answerTimeout is how long a sandbox's interface may take to answer.
const answerTimeout = time.Second

func (l *line) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gateway != nil
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

// SetNetwork changes the network of a running or paused sandbox; that of a paused
// one gets its interface when it is resumed. Switching it off cuts every
// connection. It returns the sandbox as it is then.
//
// Errors: Invalid, naming the field; NotFound; NotRunning while it is
// provisioning; Ended; Unsupported; Unavailable when it could not be connected
// now: that is tried again.
func (s *Service) SetNetwork(ctx context.Context, c Caller, ref string, change NetworkChange) (sandbox.Sandbox, error) {
	if err := s.ready(); err != nil {
		return sandbox.Sandbox{}, err
	}
	if change.Ports != nil {
		if err := checkPorts("ports", *change.Ports); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if change.Enabled != nil && *change.Enabled {
		if err := s.networkOffered(); err != nil {
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
		return sandbox.Sandbox{}, stateError(&sb)
	}
	err = s.fly(ctx, b, flightNetwork, func(fl *flight) error { return s.setNetwork(fl, change) })
	return b.sandbox(), err
}

// setNetwork records a change and makes it true.
func (s *Service) setNetwork(fl *flight, change NetworkChange) error {
	b := fl.box
	sb := b.sandbox()
	if sb.State != sandbox.Running && sb.State != sandbox.Paused {
		return stateError(&sb)
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
	if b.line.connected() {
		return nil
	}
	return s.reconnect(b)
}

// recordNetwork records what change makes of the sandbox's network and published
// ports, if that is anything new, and returns the sandbox as it is then.
func (s *Service) recordNetwork(b *box, change func(*sandbox.Sandbox) error) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.over(); err != nil {
		return sandbox.Sandbox{}, err
	}
	before := b.sandbox()
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
	sb, err := s.store.SetNetwork(s.ctx, b.id, sb.Network.Enabled, sb.Published, ev)
	if err != nil {
		return before, err
	}
	b.set(sb)
	s.boxes.publish(b)
	return b.sandbox(), nil
}

// reconnect gives a running box its interface and tells its agent.
func (s *Service) reconnect(b *box) error {
	ctx, cancel := context.WithTimeout(b.ctx, s.cfg.StartTimeout)
	defer cancel()
	if err := s.connect(ctx, b); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox could not be connected to its network; it is tried again soon")
	}
	return s.tellAgent(ctx, b)
}

// reconnectLater gives a box that a server before left its interface, and tells
// its agent in the background, which may take its time. What does not work is
// mended by the sweep.
func (s *Service) reconnectLater(ctx context.Context, b *box) {
	if !b.sandbox().Network.Enabled {
		return
	}
	if err := s.connect(ctx, b); err != nil {
		s.log.Error("sandbox is without its network", "sandbox", b.id, "error", err)
		return
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(b.ctx, attemptTimeout)
		defer cancel()
		if err := s.tellAgent(ctx, b); err != nil && b.ctx.Err() == nil {
			s.log.Warn("agent not told of its network", "sandbox", b.id, "error", err)
		}
	})
}

// tellAgent has the agent of a running box know what its sandbox is now.
func (s *Service) tellAgent(ctx context.Context, b *box) error {
	b.envMu.Lock()
	defer b.envMu.Unlock()
	sb := b.sandbox()
	img, _, err := s.images.Resolve(ctx, sb.ImageDigest)
	if err != nil {
		return fmt.Errorf("image of sandbox %s: %w", b.id, err)
	}
	return s.explain(ctx, b, b.agent.Configure(ctx, s.agentConfig(&sb, &img)))
}

// connect gives a box that was started its interface, when its sandbox is to have one.
func (s *Service) connect(ctx context.Context, b *box) error {
	if !b.sandbox().Network.Enabled {
		return nil
	}
	return s.plug(ctx, b)
}

// plug gives a box that was started an interface.
func (s *Service) plug(ctx context.Context, b *box) error {
	n, err := s.networker()
	if err != nil {
		// Not Unsupported: that would be said of what was saved of the sandbox.
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox has a network, which this server cannot give it")
	}
	gateway, nic, err := s.network.Attach(b.id)
	if err != nil {
		return err
	}
	if err := n.Plug(ctx, b.id, nic); err != nil {
		gateway.Close()
		return fmt.Errorf("plug network into box %s: %w", b.id, err)
	}
	b.line.connect(gateway)
	return nil
}

// unplug takes the interface of a running box away. Whatever the box thinks of
// it, nothing leads out any more.
func (s *Service) unplug(b *box) error {
	b.line.disconnect(false)
	n, err := s.networker()
	if err != nil {
		return nil // it never had one from this server
	}
	ctx, cancel := context.WithTimeout(b.ctx, attemptTimeout)
	defer cancel()
	if err := n.Unplug(ctx, b.id); err != nil {
		s.log.Warn("interface of a sandbox not switched off; it leads nowhere", "sandbox", b.id, "error", err)
	}
	return nil
}

// agentNetwork is what the agent of a sandbox is told about its network; nil for none.
func (s *Service) agentNetwork(sb *sandbox.Sandbox) *agentapi.Network {
	if !sb.Network.Enabled || s.network == nil {
		return nil
	}
	return &agentapi.Network{Nameserver: s.network.Nameserver().String(), CA: string(s.cfg.NetworkCA)}
}

// mendNetwork connects a running sandbox again that should be and is not.
func (s *Service) mendNetwork(b *box) {
	err := s.fly(b.ctx, b, flightNetwork, func(fl *flight) error { return s.setNetwork(fl, NetworkChange{}) })
	if err != nil && b.ctx.Err() == nil {
		s.log.Error("sandbox is without its network, trying again soon", "sandbox", b.id, "error", err)
	}
}
