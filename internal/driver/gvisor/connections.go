package gvisor

import (
	"context"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
)

// connections are the connections to the agent of a box.
type connections struct {
	// dialing is acquired with weight 1 while a connection is made, and with its whole weight while
	// no connection may exist.
	dialing *semaphore.Weighted

	mu   sync.Mutex
	open map[*agentConn]struct{} // guarded by mu; nil when no more may be opened
	// closing has the sockets of direct connections that are closed here, and that the agent has not closed
	// or whose bytes it still keeps. Guarded by mu; nil like open.
	closing map[*os.File]struct{}
}

// allDialing is the whole weight of dialing.
const allDialing = math.MaxInt32

func newConnections() connections {
	return connections{dialing: semaphore.NewWeighted(allDialing), open: map[*agentConn]struct{}{}, closing: map[*os.File]struct{}{}}
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
	conns, closing := c.open, c.closing
	c.open, c.closing = nil, nil
	c.mu.Unlock()
	for conn := range conns {
		_ = conn.Close()
	}
	for socket := range closing {
		_ = socket.Close()
	}
}

const (
	// hangUpTime limits the time that gVisor takes to close its ends of forwarded connections.
	hangUpTime = 10 * time.Second
	// agentHangUpTime limits the time that the agent takes to close its ends of connections. Go's HTTP server waits half a
	// second before it closes the connection of an upload that it refused.
	agentHangUpTime = 3 * time.Second
	// maxClosing limits the connections that are closed by the server and not yet by the agent: the host's memory keeps the bytes
	// that were sent on them.
	maxClosing = 64
	// closingWait is how long a dial waits until there are fewer.
	closingWait = time.Second
)

// errKept reports that the agent does not close its ends of connections.
var errKept = sandbox.Errorf(sandbox.AgentUnreachable, "the sandbox's agent keeps its connections open")

// hangUp closes every connection; new connections can be made. It returns when the agent or gVisor
// has closed the other ends, also of direct connections that were closed before. Errors: AgentUnreachable
// when the agent does not close its own. Forwarded connections may still be open in gVisor.
func (c *connections) hangUp(ctx context.Context) error {
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	limit := agentHangUpTime
	for _, conn := range conns {
		_ = conn.socket.CloseWrite() // the other end is then closed also
		if !conn.direct {
			limit = hangUpTime
		}
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, conn := range conns {
		until(wait, conn.hungUp)
		_ = conn.Close() // it removes itself
	}
	if until(wait, func() bool { return c.kept() == 0 }) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errKept
}

// until waits until done returns true, and reports whether it did before ctx ended.
func until(ctx context.Context, done func() bool) bool {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// kept returns how many connections are closed here and not by the agent.
func (c *connections) kept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.closing)
}

// limitClosing waits shortly until fewer than maxClosing connections are closed here and not by the agent.
func (c *connections) limitClosing(ctx context.Context) error {
	if c.kept() < maxClosing {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, closingWait)
	defer cancel()
	if until(wait, func() bool { return c.kept() < maxClosing }) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errKept
}

// closed records that a direct connection was closed here, until the agent has closed it. socket is another
// descriptor of it.
func (c *connections) closed(socket *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == nil {
		socket.Close()
		return
	}
	c.closing[socket] = struct{}{}
	go func() {
		waitGone(socket)
		c.mu.Lock()
		delete(c.closing, socket)
		c.mu.Unlock()
		socket.Close()
	}()
}

// waitGone waits until the other end of a connection is closed and has no bytes, or ours is closed.
func waitGone(socket *os.File) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	if raw.Read(func(fd uintptr) bool { return pollHangUp(fd) }) != nil { // called again after each event
		return
	}
	// The other end may also have been shut down only, and still keep what was sent.
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		queued := 0
		err := raw.Control(func(fd uintptr) { queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if err != nil || queued == 0 {
			return
		}
		time.Sleep(pause)
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
		if c.direct {
			if socket, err := c.socket.File(); err == nil { // recorded before it is removed below
				_ = c.socket.CloseWrite()
				c.of.closed(socket)
			}
		}
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
	err = raw.Control(func(fd uintptr) { gone = pollHangUp(fd) })
	return gone || err != nil
}

// pollHangUp reports whether the other end of a socket that is shut down for sending is closed.
func pollHangUp(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&unix.POLLHUP != 0
}
