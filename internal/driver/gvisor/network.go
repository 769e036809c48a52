package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// gVisor has no constants for these.
const (
	createLinks  = "Network.CreateLinksAndRoutes"
	disableLinks = "Lifecycle.PauseExternalNetworking"
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
	ctx, leave := d.enter(ctx)
	defer leave()
	b, err := d.lockStarted(ctx, id)
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
	args := linkArgs(name, nic)
	err = useFD(nic.File, func(fd int) error {
		return call(ctx, measureRPC, b.dir, createLinks, &args, nil, fd)
	})
	return b.networkError(ctx, err)
}

// Unplug implements [driver.Networker].
func (d *Driver) Unplug(ctx context.Context, id sandbox.ID) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	b, err := d.lockStarted(ctx, id)
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
	return call(ctx, measureRPC, b.dir, disableLinks, nil, nil)
}

// networkError gives an error of gVisor its code.
func (b *box) networkError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.hasEnded(), hungUp(err):
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

// linkArgs describes the interface to gVisor.
func linkArgs(name string, nic driver.NIC) boot.CreateLinksAndRoutesArgs {
	gateway := nic.Gateway.AsSlice()
	all := boot.DefaultRoute{Name: name, Route: boot.Route{Destination: ipNet(netip.PrefixFrom(zero(nic.Gateway), 0)), Gateway: gateway}}
	args := boot.CreateLinksAndRoutesArgs{FDBasedLinks: []boot.FDBasedLink{{
		Name: name, MTU: nic.MTU, LinkAddress: nic.MAC,
		Addresses: []boot.IPWithPrefix{{Address: nic.Address.Addr().AsSlice(), PrefixLen: nic.Address.Bits()}},
		Routes:    []boot.Route{{Destination: ipNet(nic.Address.Masked())}},
		Neighbors: []boot.Neighbor{{IP: gateway, HardwareAddr: nic.GatewayMAC}},
		// Frames do not leave this host's memory.
		TXChecksumOffload: true, RXChecksumOffload: true,
		NumChannels: 1, ProcessorsPerChannel: 1,
		// Answers to queries that gVisor would make on the socket; its system call filter forbids
		// them by now.
		IsPacket: []bool{false}, PreConfigured: true,
	}}}
	if nic.Gateway.Is4() {
		args.Defaultv4Gateway = all
	} else {
		args.Defaultv6Gateway = all
	}
	return args
}

func zero(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// useFD calls fn with f's descriptor, and does not change f's mode.
func useFD(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}
