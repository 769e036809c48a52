package gvisor

import (
	"context"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// connections are the connections to the agent of a box.
type connections struct {
	// dialing is acquired with weight 1 while a connection is made, and with its whole weight while
	// no connection may exist.
	dialing *semaphore.Weighted

	mu   sync.Mutex
	open map[*agentConn]struct{} // guarded by mu; nil when no more may be opened
}

// allDialing is the whole weight of dialing.
const allDialing = math.MaxInt32

func newConnections() connections {
	return connections{dialing: semaphore.NewWeighted(allDialing), open: map[*agentConn]struct{}{}}
}

// track adds the connection, a Unix socket, until it is closed. When no more may be opened, it
// closes the connection and returns nil. direct is whether the agent itself has the other end.
func (c *connections) track(conn net.Conn, direct bool) net.Conn {
	a := &agentConn{Conn: conn, socket: conn.(*net.UnixConn), direct: direct, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		conn.Close()
		return nil
	}
	c.open[a] = struct{}{}
	return a
}

// end closes every connection and prevents new connections.
func (c *connections) end() {
	c.mu.Lock()
	conns := c.open
	c.open = nil
	c.mu.Unlock()
	for conn := range conns {
		_ = conn.Close()
	}
}

// hangUpTime is how long the other ends of connections may take to close.
const hangUpTime = 10 * time.Second

// hangUp closes every connection; new connections can be made. It returns when the agent or gVisor
// has closed the other ends of them, after [hangUpTime], or when ctx ends.
func (c *connections) hangUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hangUpTime)
	defer cancel()
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.socket.CloseWrite() // the other end is then closed also
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for _, conn := range conns {
		for ctx.Err() == nil && !conn.hungUp() {
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
		_ = conn.Close() // it removes itself
	}
}

// agentConn is a connection to the agent. Embedding the interface hides the socket's CloseWrite,
// which ends both directions, from callers.
type agentConn struct {
	net.Conn
	socket *net.UnixConn // the same as Conn
	direct bool
	of     *connections
	once   sync.Once
}

// Direct implements [agentapi.Direct].
func (c *agentConn) Direct() bool { return c.direct }

// Close implements [net.Conn].
func (c *agentConn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}

// hungUp reports whether the other end is closed, or ours is closed. It reads nothing, because
// data belongs to the user of the connection.
func (c *agentConn) hungUp() bool {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		gone = err == nil && n == 1 && poll[0].Revents&unix.POLLHUP != 0
	})
	return gone || err != nil
}
