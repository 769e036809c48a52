// Package network connects sandboxes to their networks, and publishes their ports: it switches the
// interface of a sandbox on and off, and finds the port that a URL's label names.
package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/sandbox"
)

// callTimeout bounds one call to an agent, and to the driver to remove an interface.
const callTimeout = 5 * time.Second

// Gateways makes the server's end of the interfaces of sandboxes. It is safe for concurrent use.
type Gateways interface {
	// Attach makes the gateway of a sandbox with its rules, and the interface to plug into its box.
	Attach(id sandbox.ID, rules *netrule.Rules) (box.Gateway, driver.NIC, error)
	// Nameserver is the address at which gateways answer DNS.
	Nameserver() netip.Addr
}

// Store records networks.
type Store interface {
	// ChangeSandbox makes changes to a live sandbox, with an event. Errors: NotFound, Ended.
	ChangeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error)
}

// Sandboxes finds the sandboxes whose network changes.
type Sandboxes interface {
	// Find returns the sandbox that ref means to the caller, and its box unless it has ended. Errors:
	// NotFound.
	Find(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error)
}

// Agents configures the agents of sandboxes.
type Agents interface {
	// Refresh configures the agent of a running box with the present settings of its sandbox.
	Refresh(ctx context.Context, b *box.Box) error
}

// Deps are the dependencies of the service. All but Gateways and Owner must be set.
type Deps struct {
	Store     Store
	Sandboxes Sandboxes
	Agents    Agents
	Driver    driver.Driver
	// Gateways makes the other end of interfaces; without it, or a driver that plugs interfaces in, no
	// sandbox has a network.
	Gateways Gateways
	// Owner has the shards of the sandboxes in memory; nil for all shards.
	Owner *sandbox.Ownership
	// Work runs goroutines while the service may change anything.
	Work   *background.Group
	Logger *slog.Logger
}

// Service changes the networks and published ports of sandboxes. It is safe for concurrent use.
type Service struct {
	deps Deps
	// connectTimeout bounds the connection of a running box, with the configuration of its agent.
	connectTimeout time.Duration
	labels         labels
}

// New returns a service, which takes at most connectTimeout to connect a running box.
func New(connectTimeout time.Duration, deps Deps) *Service {
	return &Service{deps: deps, connectTimeout: connectTimeout, labels: newLabels()}
}

// Change says what to change of a sandbox's network; nil fields stay.
type Change struct {
	// Enabled switches the interface on or off.
	Enabled *bool
	// Ports are the published ports from now on.
	Ports *[]uint16
	// AllowOut and DenyOut are the destinations that it may and may not reach from now on, as
	// [CheckRules] reads them. Allowed destinations deny all others, unless DenyOut is there or the
	// sandbox has denied destinations.
	AllowOut, DenyOut *[]string
	// RequestHost and HTTPSPorts are how requests reach its servers from now on, see [sandbox.Network].
	RequestHost *string
	HTTPSPorts  *[]uint16
}

// Offered returns an error if this server cannot give sandboxes a network.
func (s *Service) Offered() error {
	_, err := s.networker()
	return err
}

func (s *Service) networker() (driver.Networker, error) {
	n, ok := s.deps.Driver.(driver.Networker)
	if !ok || !s.deps.Driver.Capabilities().Network || s.deps.Gateways == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server cannot give sandboxes a network")
	}
	return n, nil
}

// Set changes the network of a running or paused sandbox; a paused sandbox gets its interface when
// it is resumed. Switching it off cuts every connection. It returns the changed sandbox. Errors:
// Invalid, naming the field; NotFound; NotRunning while it is provisioning; Ended; Unsupported;
// Unavailable when it could not be connected now: the server tries again.
func (s *Service) Set(ctx context.Context, c sandbox.Caller, ref string, change Change) (sandbox.Sandbox, error) {
	if !s.deps.Work.Running() {
		return sandbox.Sandbox{}, box.ErrClosed
	}
	if change.Ports != nil {
		if err := CheckPorts("ports", *change.Ports); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if change.Enabled != nil && *change.Enabled {
		if err := s.Offered(); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if change.Enabled != nil {
		audit.FromContext(ctx).Detail("network", strconv.FormatBool(*change.Enabled))
	}
	if change.Ports != nil {
		audit.FromContext(ctx).Detail("ports", fmt.Sprint(*change.Ports))
	}
	if change.AllowOut != nil {
		audit.FromContext(ctx).Detail("allow_out", listText(*change.AllowOut))
	}
	if change.DenyOut != nil {
		audit.FromContext(ctx).Detail("deny_out", listText(*change.DenyOut))
	}
	if change.RequestHost != nil {
		if err := CheckHost("request_host", *change.RequestHost); err != nil {
			return sandbox.Sandbox{}, err
		}
		audit.FromContext(ctx).Detail("request_host", *change.RequestHost)
	}
	if change.HTTPSPorts != nil {
		if err := CheckPorts("https_ports", *change.HTTPSPorts); err != nil {
			return sandbox.Sandbox{}, err
		}
		audit.FromContext(ctx).Detail("https_ports", fmt.Sprint(*change.HTTPSPorts))
	}
	b, sb, err := s.deps.Sandboxes.Find(ctx, c, ref)
	switch {
	case err != nil:
		return sandbox.Sandbox{}, err
	case b == nil:
		return sandbox.Sandbox{}, box.StateError(&sb)
	}
	err = b.Exclusively(ctx, box.Network, func() error { return s.set(b, change) })
	return b.Sandbox(), err
}

// set records a change and carries it out.
func (s *Service) set(b *box.Box, change Change) error {
	sb := b.Sandbox()
	if sb.State != sandbox.Running && sb.State != sandbox.Paused {
		return box.StateError(&sb)
	}
	sb, err := s.record(b, func(sb *sandbox.Sandbox) error {
		if change.Enabled != nil {
			sb.Network.Enabled = *change.Enabled
		}
		if change.Ports != nil {
			sb.Publish(*change.Ports, time.Now().UTC())
		}
		change.applyRequests(&sb.Network)
		return change.applyRules(&sb.Network)
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
	if !b.Link.Connected() {
		return s.reconnect(b)
	}
	rules, err := rulesOf(&sb)
	if err == nil {
		b.Link.Restrict(rules)
	}
	return err
}

// record applies change to the network and published ports of a sandbox, records the result if it
// differs, and returns the sandbox as it is then.
func (s *Service) record(b *box.Box, change func(*sandbox.Sandbox) error) (sandbox.Sandbox, error) {
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
	rules, rulesBefore := sb.Network.Rules(), before.Network.Rules()
	if rules.Equal(&rulesBefore) && sb.Network.Enabled == before.Network.Enabled && slices.Equal(sb.Published, before.Published) {
		return before, nil
	}
	message := "it has no access to the internet"
	if sb.Network.Enabled {
		message = "it has access to the internet" + rulesMessage(&sb.Network)
	}
	ev := sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventNetwork, Message: message + portsMessage(sb.Published) + requestsMessage(&sb.Network),
		Data: map[string]string{
			"enabled": strconv.FormatBool(sb.Network.Enabled), "ports": fmt.Sprint(sb.Network.Ports),
			"allow_out": listText(rules.Allow), "deny_out": listText(rules.Deny),
			"request_host": rules.RequestHost, "https_ports": fmt.Sprint(rules.HTTPSPorts),
		},
	}
	sb, err := s.deps.Store.ChangeSandbox(s.deps.Work.Context(), b.ID,
		sandbox.Change{NetworkEnabled: &sb.Network.Enabled, Published: &sb.Published, Rules: &rules}, ev)
	if err != nil {
		return before, err
	}
	b.Set(sb)
	s.Publish(b)
	return b.Sandbox(), nil
}

// reconnect gives a running box its interface and configures its agent.
func (s *Service) reconnect(b *box.Box) error {
	ctx, cancel := context.WithTimeout(b.Context(), s.connectTimeout)
	defer cancel()
	if err := s.Connect(ctx, b); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox could not be connected to its network; it is tried again soon")
	}
	return s.deps.Agents.Refresh(ctx, b)
}

// Readopt gives a box of a previous server its interface, and configures its agent in the
// background, which may take long. [Service.Mend] repeats failed attempts.
func (s *Service) Readopt(ctx context.Context, b *box.Box) {
	if !b.Sandbox().Network.Enabled {
		return
	}
	if err := s.Connect(ctx, b); err != nil {
		s.deps.Logger.Error("sandbox is without its network", "sandbox", b.ID, "error", err)
		return
	}
	s.deps.Work.Go(func() {
		// The operation keeps others from giving the box a new agent meanwhile, which takes no files after its configuration.
		err := b.Exclusively(b.Context(), box.Network, func() error {
			if b.Sandbox().State != sandbox.Running {
				return nil // its resume configures it
			}
			ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
			defer cancel()
			return s.deps.Agents.Refresh(ctx, b)
		})
		if err != nil && b.Context().Err() == nil {
			s.deps.Logger.Warn("agent not configured for its network", "sandbox", b.ID, "error", err)
		}
	})
}

// Connect gives a started box its interface if its sandbox has a network.
func (s *Service) Connect(ctx context.Context, b *box.Box) error {
	sb := b.Sandbox()
	if !sb.Network.Enabled {
		return nil
	}
	rules, err := rulesOf(&sb)
	if err != nil {
		return err
	}
	return s.plug(ctx, b, rules)
}

// Plug gives a started box an interface without rules; the box needs no sandbox.
func (s *Service) Plug(ctx context.Context, b *box.Box) error { return s.plug(ctx, b, nil) }

func (s *Service) plug(ctx context.Context, b *box.Box, rules *netrule.Rules) error {
	n, err := s.networker()
	if err != nil {
		// Not Unsupported, which would mean that the saved state cannot be restored.
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox has a network, which this server cannot give it")
	}
	gateway, nic, err := s.deps.Gateways.Attach(b.ID, rules)
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
func (s *Service) unplug(b *box.Box) error {
	b.Link.Disconnect(false)
	n, err := s.networker()
	if err != nil {
		return nil // it never had an interface from this server
	}
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	if err := n.Unplug(ctx, b.ID); err != nil {
		s.deps.Logger.Warn("interface of a sandbox not switched off; it leads nowhere", "sandbox", b.ID, "error", err)
	}
	return nil
}

// NeedsMending reports whether a box runs without the network that its sandbox has, although this
// server could connect it.
func (s *Service) NeedsMending(b *box.Box) bool {
	sb := b.Sandbox()
	return sb.State == sandbox.Running && sb.Network.Enabled && !b.Link.Connected() && !b.Busy() && s.Offered() == nil
}

// Mend connects a running box that lost its network, and logs a failure.
func (s *Service) Mend(b *box.Box) {
	err := b.Exclusively(b.Context(), box.Network, func() error { return s.set(b, Change{}) })
	if err != nil && b.Context().Err() == nil {
		s.deps.Logger.Error("sandbox is without its network, trying again soon", "sandbox", b.ID, "error", err)
	}
}
