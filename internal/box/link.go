package box

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/netrule"
)

// Gateway is the server's end of one sandbox's network interface. It is safe for concurrent use.
type Gateway interface {
	// Traffic returns the bytes that the sandbox sent and received so far, also
	// after Close.
	Traffic() (sent, received int64)
	// Dial connects to a TCP port at the sandbox's interface; the connection outlives
	// ctx and breaks with Close. It fails, soon or with ctx, when no server listens there.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// Restrict replaces the rules about destinations, and cuts the connections that they do
	// not allow; nil allows everything that is not closed for every sandbox.
	Restrict(rules *netrule.Rules)
	// Close cuts every connection at once. Idempotent.
	Close()
}

// Link is a box's connection to the network: its gateway, and the traffic of the gateways
// before it. The zero value has no gateway. It is safe for concurrent use.
type Link struct {
	mu             sync.Mutex
	gateway        Gateway // guarded by mu; nil for none
	closed         bool    // no gateway is taken any more; guarded by mu
	sent, received int64   // of the gateways before; guarded by mu
}

// Connect replaces the gateway. After the last Disconnect it closes g.
func (l *Link) Connect(g Gateway) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		g.Close()
		return
	}
	l.cut()
	l.gateway = g
}

// Disconnect closes the gateway; if last, for good.
func (l *Link) Disconnect(last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = l.closed || last
	l.cut()
}

// cut closes the gateway.
//
// Preconditions: l.mu is held.
func (l *Link) cut() {
	if l.gateway == nil {
		return
	}
	l.gateway.Close()
	sent, received := l.gateway.Traffic()
	l.sent, l.received, l.gateway = l.sent+sent, l.received+received, nil
}

// Restrict replaces the rules of the gateway, if the link has one.
func (l *Link) Restrict(rules *netrule.Rules) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gateway != nil {
		l.gateway.Restrict(rules)
	}
}

// Connected reports whether the link has a gateway.
func (l *Link) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gateway != nil
}

// Traffic returns the bytes that the sandbox sent and received since this server began to
// serve it.
func (l *Link) Traffic() (sent, received int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gateway == nil {
		return l.sent, l.received
	}
	sent, received = l.gateway.Traffic()
	return l.sent + sent, l.received + received
}

// answerTimeout is how long a sandbox's interface may take to answer: the sandbox's programs
// can keep it from answering at all.
const answerTimeout = time.Second

// Dial connects to a port at the sandbox's interface, and reports false if the link has no
// gateway or no server listens there.
func (l *Link) Dial(ctx context.Context, port uint16) (net.Conn, bool) {
	l.mu.Lock()
	g := l.gateway
	l.mu.Unlock()
	if g == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := g.Dial(ctx, port)
	return c, err == nil
}
