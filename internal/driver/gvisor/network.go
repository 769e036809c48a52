package gvisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/sandbox"
)

// maxMTU is the largest payload of a frame whose length has 16 bits.
const maxMTU = 65535 - 14

// Plug implements [driver.Networker].
//
// gVisor can switch off an interface but not remove it. So each interface has a name of its own,
// and earlier interfaces remain in the box, switched off.
func (d *Driver) Plug(ctx context.Context, id sandbox.ID, nic driver.NIC) error {
	defer nic.File.Close() // gVisor has its own copy
	if err := checkNIC(nic); err != nil {
		return err
	}
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lockStarted(ctx, id)
	if err != nil {
		return err
	}
	defer b.unlock()
	if err := b.unplug(ctx); err != nil {
		return b.networkError(ctx, err)
	}
	// Recorded first: a name is used only once, even if the server dies.
	var name string
	if err := b.update(func(s *state) {
		name = fmt.Sprintf("eth%d", s.Links)
		s.Links++
	}); err != nil {
		return b.networkError(ctx, err)
	}
	return b.networkError(ctx, b.gvisor.AddLink(ctx, name, nic))
}

// Unplug implements [driver.Networker].
func (d *Driver) Unplug(ctx context.Context, id sandbox.ID) error {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lockStarted(ctx, id)
	switch {
	case sandbox.CodeOf(err) == sandbox.Conflict:
		return nil // it was not started, so it has none
	case err != nil:
		return err
	}
	defer b.unlock()
	return b.networkError(ctx, b.unplug(ctx))
}

// unplug switches off all interfaces but the loopback.
func (b *box) unplug(ctx context.Context) error {
	b.mu.Lock()
	links := b.state.Links
	b.mu.Unlock()
	if links == 0 {
		return nil
	}
	return b.gvisor.DisableLinks(ctx)
}

// networkError gives an error of gVisor its code.
func (b *box) networkError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.hasEnded(), control.HungUp(err):
		return b.endedError()
	case errors.Is(err, context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox does not take a network interface")
	}
	return publicError(err, "network of box %s", b.id)
}

func checkNIC(nic driver.NIC) error {
	switch {
	case len(nic.MAC) != 6:
		return sandbox.InvalidField("mac", "%s is not an Ethernet address", nic.MAC)
	case len(nic.GatewayMAC) != 6:
		return sandbox.InvalidField("gateway_mac", "%s is not an Ethernet address", nic.GatewayMAC)
	case !nic.Address.IsValid():
		return sandbox.InvalidField("address", "it is not set")
	case !nic.Gateway.IsValid() || nic.Gateway.Is4() != nic.Address.Addr().Is4():
		return sandbox.InvalidField("gateway", "%s is not a next hop of %s", nic.Gateway, nic.Address)
	case nic.MTU < 576 || nic.MTU > maxMTU:
		return sandbox.InvalidField("mtu", "%d is not between 576 and %d", nic.MTU, maxMTU)
	}
	return nil
}
