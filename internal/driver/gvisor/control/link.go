package control

import (
	"context"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/modbox/modbox/internal/driver"
)

// gVisor has no constants for these.
const (
	createLinks  = "Network.CreateLinksAndRoutes"
	disableLinks = "Lifecycle.PauseExternalNetworking"
)

// AddLink gives a running box a network interface. A name can be used only once in the life of a
// box: gVisor can switch off an interface but not remove it.
func (c Client) AddLink(ctx context.Context, name string, nic driver.NIC) error {
	args := linkArgs(name, nic)
	return useFD(nic.File, func(fd int) error {
		return c.call(ctx, measureRPC, createLinks, &args, nil, fd)
	})
}

// DisableLinks switches off all interfaces but the loopback.
func (c Client) DisableLinks(ctx context.Context) error {
	return c.call(ctx, measureRPC, disableLinks, nil, nil)
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
