package agent

import (
	"context"
	"net"
	"sync"
)

// conns is the set of open connections.
type conns struct {
	mu   sync.Mutex
	last int64                  // guarded by mu; the number of the latest connection
	open map[*nudgingConn]int64 // guarded by mu; their numbers, in the order of acceptance
}

func newConns() *conns { return &conns{open: map[*nudgingConn]int64{}} }

func (x *conns) add(c *nudgingConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	x.open[c] = x.last
}

func (x *conns) remove(c *nudgingConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, c)
}

// closeBefore closes the connections that were accepted before the connection of the request that
// ctx belongs to.
func (x *conns) closeBefore(ctx context.Context) {
	own, _ := ctx.Value(connKey{}).(*nudgingConn)
	for _, c := range x.before(own) {
		_ = c.Close() // the error does not matter
	}
}

func (x *conns) before(own *nudgingConn) []*nudgingConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []*nudgingConn
	for c, n := range x.open {
		if n < x.open[own] {
			list = append(list, c)
		}
	}
	return list
}

// closeWhole closes the connections that were handed over.
func (x *conns) closeWhole() {
	x.mu.Lock()
	var list []*nudgingConn
	for c := range x.open {
		if c.whole {
			list = append(list, c)
		}
	}
	x.mu.Unlock()
	for _, c := range list {
		_ = c.Close() // the error does not matter
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn returns the context of the requests on a connection, which its Close cancels.
func withConn(ctx context.Context, c net.Conn) context.Context {
	n := c.(*nudgingConn)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, connKey{}, n))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		cancel()
	}
	n.cancel = cancel
	return ctx
}
