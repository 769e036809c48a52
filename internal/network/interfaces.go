package network

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// visitTimeout bounds how long the first connection to a sandbox without a network waits for the
// interface, and how long a connection waits for the answer of an interface.
const visitTimeout = time.Second

// Gateways makes the server's end of the interfaces of sandboxes. It is safe for concurrent use.
type Gateways interface {
	// Attach makes the gateway of a sandbox with a network, and the interface to plug into its box.
	Attach(id sandbox.ID) (box.Gateway, driver.NIC, error)
	// AttachInward is Attach for a sandbox without a network. The gateway leads to this server alone, and
	// only connections from this server pass it.
	AttachInward(id sandbox.ID) (box.Gateway, driver.NIC, error)
	// Nameserver is the address at which gateways of sandboxes with a network answer DNS.
	Nameserver() netip.Addr
}

// Interfaces gives boxes their network interfaces and connects to servers behind these. It is safe for
// concurrent use.
//
// A box without a network has no interface until the first connection to a port of it. Then it gets an
// interface that leads to this server alone: connections over it are faster than those through the agent, and
// boxes that nobody connects to do without its memory.
type Interfaces struct {
	driver   driver.Driver
	gateways Gateways
	timeout  time.Duration // visitTimeout, except in tests
	log      *slog.Logger
	plugging singleflight.Group // by box: its interface is made once for all visitors
}

// NewInterfaces returns interfaces for boxes of d. Without gateways (nil), or with a driver that plugs
// no interfaces in, no box gets one. A connection waits for at most timeout for its interface, and again
// for the interface's answer; 0 means a second.
func NewInterfaces(d driver.Driver, gateways Gateways, timeout time.Duration, log *slog.Logger) *Interfaces {
	return &Interfaces{driver: d, gateways: gateways, timeout: cmp.Or(timeout, visitTimeout), log: log}
}

// Dial connects to a TCP port at the interface of a running box, and reports false if no server listens
// there or the box has no interface. It gives a box without a network its interface.
func (i *Interfaces) Dial(ctx context.Context, b *box.Box, port uint16) (net.Conn, bool) {
	if !b.Link.Attached() {
		i.plugInward(ctx, b)
	}
	return b.Link.Dial(ctx, port, i.timeout)
}

func (i *Interfaces) networker() (driver.Networker, error) {
	n, ok := i.driver.(driver.Networker)
	if !ok || !i.driver.Capabilities().Network || i.gateways == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server cannot give sandboxes a network")
	}
	return n, nil
}

// plug gives a started box an interface that leads to the network.
func (i *Interfaces) plug(ctx context.Context, b *box.Box) error {
	n, err := i.networker()
	if err != nil {
		// Not Unsupported, which would mean that the saved state cannot be restored.
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox has a network, which this server cannot give it")
	}
	gateway, nic, err := i.gateways.Attach(b.ID)
	if err != nil {
		return err
	}
	if err := n.Plug(ctx, b.ID, nic); err != nil {
		gateway.Close()
		b.Link.Disconnect(false) // the interface before, if any, is switched off
		return fmt.Errorf("plug network into box %s: %w", b.ID, err)
	}
	b.Link.Connect(gateway)
	return nil
}

// plugInward gives a running box without a network an interface that leads to this server alone. After
// a failure the agent still leads to all ports.
func (i *Interfaces) plugInward(ctx context.Context, b *box.Box) {
	n, err := i.networker()
	if err != nil || b.View().Sandbox.Network.Enabled || !b.Link.MayTryInward() {
		return
	}
	ended := i.plugging.DoChan(string(b.ID), func() (any, error) {
		ctx, cancel := context.WithTimeout(b.Context(), i.timeout)
		defer cancel()
		return nil, i.tryInward(ctx, n, b)
	})
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// tryInward gives a box an interface that leads to this server alone, unless it has got one or must not
// have one. It is an operation, so that the box is neither saved nor connected to a network meanwhile. It
// returns an error only if the wait or the box ends.
func (i *Interfaces) tryInward(ctx context.Context, n driver.Networker, b *box.Box) error {
	return b.Exclusively(ctx, box.Network, func() error {
		if sb := b.Sandbox(); sb.State != sandbox.Running || sb.Network.Enabled || b.Link.Attached() || !b.Link.MayTryInward() {
			return nil
		}
		if err := i.makeInward(n, b); err != nil && b.Context().Err() == nil {
			b.Link.InwardFailed()
			i.log.Warn("sandbox has no interface for connections to its ports; they go through its agent", "sandbox", b.ID, "error", err)
		}
		return nil
	})
}

// makeInward makes the interface and its gateway.
func (i *Interfaces) makeInward(n driver.Networker, b *box.Box) error {
	gateway, nic, err := i.gateways.AttachInward(b.ID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	if err := n.Plug(ctx, b.ID, nic); err != nil {
		gateway.Close()
		return err
	}
	b.Link.ConnectInward(gateway)
	return nil
}

// unplug removes the interface of a running box, so that nothing leaves the box any more, even if
// it is hostile.
func (i *Interfaces) unplug(b *box.Box) {
	b.Link.Disconnect(false)
	n, err := i.networker()
	if err != nil {
		return // it never had an interface from this server
	}
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	if err := n.Unplug(ctx, b.ID); err != nil {
		i.log.Warn("interface of a sandbox not switched off; it leads nowhere", "sandbox", b.ID, "error", err)
	}
}
