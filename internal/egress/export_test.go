package egress

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// RouteToLoopback redirects what sandboxes send to addr to the host's 127.0.0.1, where tests may
// listen. Addresses are checked as always, on the address to which the socket connects.
func (n *Network) RouteToLoopback(addr netip.Addr) {
	connect := n.connect
	n.connect = func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
		if dest, err := netip.ParseAddrPort(address); err == nil && dest.Addr() == addr {
			address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dest.Port()).String()
		}
		return connect(ctx, d, network, address)
	}
}

// SetTimeouts sets the timeouts for the host's resolvers, for echoes, and for questions on a
// connection.
func (n *Network) SetTimeouts(d time.Duration) {
	n.resolver.askTimeout, n.resolver.answerTimeout = d, 4*d
	n.dnsIdle, n.pingTimeout = d, d
}

// SharedQuestions sets the number of concurrent questions that all sandboxes share.
func (n *Network) SharedQuestions(most int) { n.resolver.shared = make(chan struct{}, most) }

// Limits of the concurrent questions of a sandbox: all of them, and the questions that do not need a shared
// place.
const MaxAsking, OwnAsking = perBoxAsking, ownAsking

// AcceptFrame is the filter for frames.
func AcceptFrame(frame []byte) bool {
	_, ok := acceptFrame(frame)
	return ok
}

// CheckClosed returns why addr is closed, or nil.
func (n *Network) CheckClosed(addr netip.Addr) error { return n.closure.check(addr) }

// ErrClosed is in the chain of CheckClosed's errors for closed addresses.
var ErrClosed = errClosed

// TakeFlow takes a flow that wants extra bytes from the budget, and returns the size of its buffers
// and the function that releases it.
func (b *TestBudget) TakeFlow(extra int64) (buffer int, release func(), ok bool) {
	l, ok := take(extra, &b.budget)
	if !ok {
		return 0, nil, false
	}
	return l.buffer(), l.release, true
}

// TestBudget is a budget.
type TestBudget struct{ budget budget }

// NewTestBudget makes a budget.
func NewTestBudget(flows int, extra int64) *TestBudget {
	return &TestBudget{budget: budget{flows: flows, extra: extra}}
}

// The sizes of a flow's buffers.
const (
	MinBuffer = minBuffer
	MaxBuffer = maxBuffer
)
