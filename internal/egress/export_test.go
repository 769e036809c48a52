package egress

import (
	"context"
	"net"
	"net/netip"
)

// RouteToLoopback makes what sandboxes send to addr arrive at the host's
// 127.0.0.1, where tests may listen. Addresses are checked as ever, on what the
// socket is connected to.
func (n *Network) RouteToLoopback(addr netip.Addr) {
	connect := n.connect
	n.connect = func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
		if dest, err := netip.ParseAddrPort(address); err == nil && dest.Addr() == addr {
			address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dest.Port()).String()
		}
		return connect(ctx, d, network, address)
	}
}

// Admit is the filter at the entry of frames.
func Admit(frame []byte) bool {
	_, ok := admit(frame)
	return ok
}

// CheckClosed says why addr is closed, or nil.
func (n *Network) CheckClosed(addr netip.Addr) error { return n.closure.check(addr) }

// ErrClosed is in the chain of what CheckClosed returns for closed addresses.
var ErrClosed = errClosed
