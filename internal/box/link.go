package box

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Gateway is the server's end of one sandbox's network interface. It is safe for concurrent use.
type Gateway interface {
	// Traffic returns the bytes that the sandbox sent and received so far, also
	// after Close.
	Traffic() (sent, received int64)
	// Dial connects to a TCP port at the sandbox's interface; the connection outlives
	// ctx and breaks with Close. It fails, soon or with ctx, when no server listens there.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// Close cuts every connection at once. Idempotent.
	Close()
}

// Link is a box's connection to the network, or to this server alone: its gateway, and the traffic
// of the gateways before it. The zero value has no gateway. It is safe for concurrent use.
type Link struct {
	mu             sync.Mutex
	gateway        Gateway   // guarded by mu; nil for none
	inward         bool      // the gateway leads to this server alone; guarded by mu
	silent         time.Time // the gateway is not dialed before; guarded by mu
	retry          time.Time // no gateway of that kind is tried before; guarded by mu
	closed         bool      // no gateway is taken any more; guarded by mu
	sent, received int64     // of the gateways before; guarded by mu
}

// Connect replaces the gateway. After the last Disconnect it closes g.
func (l *Link) Connect(g Gateway) { l.connect(g, false) }

// ConnectInward is Connect for a gateway that leads to this server alone. Its bytes do not count as
// traffic.
func (l *Link) ConnectInward(g Gateway) { l.connect(g, true) }

func (l *Link) connect(g Gateway, inward bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		g.Close()
		return
	}
	l.cut()
	l.gateway, l.inward, l.silent = g, inward, time.Time{}
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
	l.sent, l.received = l.traffic()
	l.gateway = nil
}

// Connected reports whether the link has a gateway to the network.
func (l *Link) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gateway != nil && !l.inward
}

// Attached reports whether the link has a gateway, to the network or to this server alone.
func (l *Link) Attached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gateway != nil
}

// inwardPause is how long connections do without an interface that could not be made.
const inwardPause = time.Minute

// InwardFailed notes that the box could not be given an interface that leads to this server alone.
func (l *Link) InwardFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retry = time.Now().Add(inwardPause)
}

// MayTryInward reports whether such a failure is not recent.
func (l *Link) MayTryInward() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().After(l.retry)
}

// Traffic returns the bytes that the sandbox sent and received since this server began to
// serve it.
func (l *Link) Traffic() (sent, received int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traffic()
}

// traffic is Traffic.
//
// Preconditions: l.mu is held.
func (l *Link) traffic() (sent, received int64) {
	if l.gateway == nil || l.inward {
		return l.sent, l.received
	}
	sent, received = l.gateway.Traffic()
	return l.sent + sent, l.received + received
}

// silentPause is how long a gateway is not dialed after the sandbox's interface did not answer in time.
const silentPause = 5 * time.Second

// Dial connects to a port at the sandbox's interface, and reports false if the link has no
// gateway, no server listens there, or the interface does not answer in time: the sandbox's programs
// can keep it from answering at all. It removes a gateway that is dead.
func (l *Link) Dial(ctx context.Context, port uint16, timeout time.Duration) (net.Conn, bool) {
	l.mu.Lock()
	g := l.gateway
	if time.Now().Before(l.silent) {
		g = nil
	}
	l.mu.Unlock()
	if g == nil {
		return nil, false
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := g.Dial(limited, port)
	if err == nil {
		return c, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gateway != g:
	case errors.Is(err, net.ErrClosed):
		l.cut()
		l.retry = time.Now().Add(inwardPause) // each interface costs the box memory for good
	case limited.Err() != nil && ctx.Err() == nil:
		l.silent = time.Now().Add(silentPause)
	}
	return nil, false
}
