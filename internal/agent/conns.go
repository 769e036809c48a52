package agent

import (
	"context"
	"net"
	"sync"
)

// conns are the connections there are.
type conns struct {
	mu   sync.Mutex
	last int64                  // guarded by mu; the number of the newest
	open map[*nudgingConn]int64 // guarded by mu; their numbers, in the order they were accepted
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

// closeBefore closes the connections accepted before the one that ctx, of a
// request, came over.
func (x *conns) closeBefore(ctx context.Context) {
	own, _ := ctx.Value(connKey{}).(*nudgingConn)
	for _, c := range x.before(own) {
		_ = c.Close() // it is given up
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

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}
