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

// AskedNames returns the names of hosts that the beginning of a connection to a port asks for.
var AskedNames = askedNames

// ErrShort means that the beginning is incomplete.
var ErrShort = errShort

// MaxAnswers and MaxAnswered bound the addresses of names, in total and for one answer.
const MaxAnswers, MaxAnswered = maxAnswers, maxAnswered

// Answers returns the number of addresses that a sandbox may reach because of names.
func (g *Gateway) Answers() int {
	g.restriction.mu.Lock()
	defer g.restriction.mu.Unlock()
	return len(g.restriction.answers)
}

// ExpireAnswers lets the time of all answers about names pass.
func (g *Gateway) ExpireAnswers() {
	g.restriction.mu.Lock()
	defer g.restriction.mu.Unlock()
	for addr, found := range g.restriction.answers {
		found.until = time.Now()
		g.restriction.answers[addr] = found
	}
}

// OpenFlows returns the number of flows that a change of the rules would look at.
func (g *Gateway) OpenFlows() int {
	g.restriction.mu.Lock()
	defer g.restriction.mu.Unlock()
	return len(g.restriction.open)
}

// Network returns the network of a gateway.
func (g *Gateway) Network() *Network { return g.network }

// Beginning is the beginning of a connection that only a name allows.
type Beginning struct{ conn checkedConn }

// NewBeginning returns the empty beginning of a connection to a port.
func NewBeginning(port uint16) *Beginning { return &Beginning{checkedConn{port: port}} }

// Add adds a part, and returns what AskedNames does.
func (b *Beginning) Add(part []byte) ([]string, error) { return b.conn.add(part) }
