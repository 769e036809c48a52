package egress

import (
	"context"
	"net"
	"net/netip"
	"time"
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

// Patience has the network wait so long for the host's resolvers, for echoes, and for
// questions on a connection.
func (n *Network) Patience(d time.Duration) {
	n.resolver.askTimeout, n.resolver.answerTimeout = d, 4*d
	n.dnsIdle, n.pingTimeout = d, d
}

// SharedQuestions has the sandboxes share so many questions under way.
func (n *Network) SharedQuestions(most int) { n.resolver.shared = make(chan struct{}, most) }

// What one sandbox may ask at a time, and what of it whatever others ask.
const MaxAsking, OwnAsking = perBoxAsking, ownAsking

// Admit is the filter at the entry of frames.
func Admit(frame []byte) bool {
	_, ok := admit(frame)
	return ok
}

// CheckClosed says why addr is closed, or nil.
func (n *Network) CheckClosed(addr netip.Addr) error { return n.closure.check(addr) }

// ErrClosed is in the chain of what CheckClosed returns for closed addresses.
var ErrClosed = errClosed

// TakeFlow takes a flow that wants extra bytes from budgets of the given sizes,
// and returns the size of its buffers and what gives it back.
func (b *TestBudget) TakeFlow(extra int64) (buffer int, release func(), ok bool) {
	l, ok := take(extra, &b.budget)
	if !ok {
		return 0, nil, false
	}
	return l.buffer(), l.release, true
}

// TestBudget is a budget by itself.
type TestBudget struct{ budget budget }

// NewTestBudget makes one.
func NewTestBudget(flows int, extra int64) *TestBudget {
	return &TestBudget{budget: budget{flows: flows, extra: extra}}
}

// The sizes of a flow's buffers.
const (
	MinBuffer = minBuffer
	MaxBuffer = maxBuffer
)
