package gvisor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/sandbox"
)

// connections are the connections to the agent of a box.
type connections struct {
	// dialing is acquired with weight 1 while a connection is made, and with its whole weight while
	// no connection may exist.
	dialing *semaphore.Weighted

	mu   sync.Mutex
	open map[*agentConn]struct{} // guarded by mu; nil when no more may be opened
	made int                     // guarded by mu; connections that are being made
	// closing has the sockets of direct connections that are closed here, and that the agent has not closed
	// or whose bytes it still keeps. Guarded by mu; nil like open.
	closing map[*os.File]struct{}
	// flooded counts the connections in closing that keep bytes that the agent sent after maxDrained. Guarded by mu.
	flooded int
	// unreadUntil is until when too many of closing are taken to have unread bytes. Guarded by mu.
	unreadUntil time.Time
}

// allDialing is the whole weight of dialing.
const allDialing = math.MaxInt32

func newConnections() connections {
	return connections{dialing: semaphore.NewWeighted(allDialing), open: map[*agentConn]struct{}{}, closing: map[*os.File]struct{}{}}
}

// track adds the connection, a Unix socket, until it is closed. When no more may be opened, it
// closes the connection and returns nil. direct is whether the agent itself has the other end.
//
// Preconditions: the caller began to make it, see [connections.begin].
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
	// maxClosing limits the connections that are closed by the server and have bytes that nobody has read, of the server or of
	// the agent: they are in the host's memory.
	maxClosing = 64
	// maxDrained limits what the server reads, and drops, of a connection that it has closed. An agent that notices the
	// end sends little more than what was in transit. Later bytes stay in the host's memory on maxClosing connections;
	// on the others the agent can send nothing more.
	maxDrained = 4 * socketBuffer
	// maxKept limits these and the connections that are closed by the server, without such bytes, and not by the agent.
	maxKept = 256
	// maxSockets limits all these and the connections that are open or being made. The two clients of the agent, for calls and
	// for connections to ports, open 256 each, so neither takes the connections of the other.
	maxSockets = 2*256 + maxClosing
	// closingWait is how long a dial waits until there are fewer.
	closingWait = time.Second
	// closingTick is the interval at which such a dial looks again. The unread bytes are counted once in it, however many dials wait.
	closingTick = 20 * time.Millisecond
)

// errKept reports that the agent does not close its ends of connections.
var errKept = sandbox.Errorf(sandbox.AgentUnreachable, "the sandbox's agent keeps its connections open")

// hangUp closes every connection; new connections can be made. It returns when the agent or gVisor
// has closed the other ends, also of direct connections that were closed before. ask makes an agent that has
// direct connections close them, see [control.Client.HangUp]; it is nil for others. Errors: AgentUnreachable
// when the agent does not close its own. Forwarded connections may still be open in gVisor. That gVisor has ended
// is no error here, but of the next step.
func (c *connections) hangUp(ctx context.Context, ask func(context.Context, int) error) error {
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
	var err error
	if ask != nil {
		err = c.askHangUp(wait, ask)
	}
	for _, conn := range conns {
		until(wait, time.Millisecond, conn.hungUp)
		_ = conn.Close() // it removes itself
	}
	if err != nil && !control.HungUp(err) {
		return cmp.Or(context.Cause(ctx), err)
	}
	if !until(wait, time.Millisecond, func() bool { return c.kept() == 0 }) {
		return cmp.Or(context.Cause(ctx), error(errKept))
	}
	return nil
}

// askHangUp makes the agent close its ends of all connections, whatever it does with what it received on them, and
// returns when it has done so. That includes connections of an earlier server. Errors: AgentUnreachable when ctx ends before.
func (c *connections) askHangUp(ctx context.Context, ask func(context.Context, int) error) error {
	if c.kept() >= maxKept {
		return errKept
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("ask the agent to hang up: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "agent")
	_ = unix.Shutdown(fds[0], unix.SHUT_WR) // an agent that serves the connection closes it also
	err = ask(ctx, fds[1])
	unix.Close(fds[1])
	if err == nil && !until(ctx, time.Millisecond, func() bool { return pollHangUp(uintptr(fds[0])) }) {
		c.closed(ours)() // the agent has the other end
		return errKept
	}
	ours.Close()
	if err != nil && ctx.Err() != nil {
		return errKept
	}
	return err
}

// until waits until done returns true, which it calls in that interval, and reports whether it did before ctx ended.
func until(ctx context.Context, interval time.Duration, done func() bool) bool {
	again := time.NewTicker(interval)
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

// begin begins to make a connection; made ends that. It waits shortly while the agent keeps too many
// connections.
func (c *connections) begin(ctx context.Context) (made func(), err error) {
	wait, cancel := context.WithTimeout(ctx, closingWait)
	defer cancel()
	if until(wait, closingTick, c.beginNow) {
		return func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.made--
		}, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, errKept
}

// beginNow counts a connection that is being made, unless there are too many.
func (c *connections) beginNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.closing) >= maxKept || len(c.closing)+len(c.open)+c.made >= maxSockets || c.tooManyUnread() {
		return false
	}
	c.made++
	return true
}

// tooManyUnread reports whether too many closed connections have bytes that nobody has read.
//
// Preconditions: c.mu is held.
func (c *connections) tooManyUnread() bool {
	if len(c.closing) < maxClosing {
		return false
	}
	if time.Now().Before(c.unreadUntil) { // many dials may wait
		return true
	}
	unread := 0
	for socket := range c.closing {
		if raw, err := socket.SyscallConn(); err == nil && (queued(raw, unix.SIOCOUTQ) > 0 || queued(raw, unix.SIOCINQ) > 0) {
			unread++
		}
		if unread >= maxClosing {
			c.unreadUntil = time.Now().Add(closingTick)
			return true
		}
	}
	return false
}

// closed records that a direct connection is closed here, until the agent has closed it. socket is another
// descriptor of it. The caller calls watch once nobody reads the connection any more.
func (c *connections) closed(socket *os.File) (watch func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == nil {
		socket.Close()
		return func() {}
	}
	c.closing[socket] = struct{}{}
	return func() {
		go func() {
			flooded := c.waitGone(socket)
			c.mu.Lock()
			delete(c.closing, socket)
			c.mu.Unlock()
			socket.Close()
			if flooded { // only now are the bytes gone
				c.mu.Lock()
				c.flooded--
				c.mu.Unlock()
			}
		}()
	}
}

// mayFlood counts a connection in c.flooded, unless there are too many.
func (c *connections) mayFlood() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flooded >= maxClosing {
		return false
	}
	c.flooded++
	return true
}

// waitGone waits until the other end of a connection is closed and has no bytes, or ours is closed. It reads some of what
// arrives meanwhile, so that an agent that is sending notices the end. If more arrives while too many others
// are full already, it ends the connection. It returns whether it counted the connection in c.flooded.
func (c *connections) waitGone(socket *os.File) (flooded bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	left := maxDrained
	err = raw.Read(func(fd uintptr) bool { // called again after each event
		left -= drain(int(fd), left)
		if pollHangUp(fd) {
			return true
		}
		if left == 0 && !flooded {
			if flooded = c.mayFlood(); !flooded {
				_ = unix.Shutdown(int(fd), unix.SHUT_RD) // the agent can send nothing from now on
				drain(int(fd), math.MaxInt)
				return true
			}
		}
		return false
	})
	if err != nil {
		return flooded
	}
	// The other end may also have been shut down only, and still keep what was sent.
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		if queued(raw, unix.SIOCOUTQ) == 0 {
			return flooded
		}
		time.Sleep(pause)
	}
}

var drainBuffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// drain reads what has arrived on a socket, at most limit bytes, and returns how many there were.
func drain(fd, limit int) (n int) {
	buffer := drainBuffers.Get().(*[16 << 10]byte) // on the stack of each goroutine, it would stay there
	defer drainBuffers.Put(buffer)
	for n < limit {
		got, err := unix.Read(fd, buffer[:min(limit-n, len(buffer))])
		if got <= 0 || err != nil {
			break
		}
		n += got
	}
	return n
}

// queued returns how much there is of what was sent on a socket and not read (SIOCOUTQ), or received and not read (SIOCINQ);
// 0 when the socket is closed.
func queued(raw syscall.RawConn, which uint) int {
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), which) })
	return n
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
	watch := func() {}
	c.once.Do(func() {
		if c.direct {
			if socket, err := c.socket.File(); err == nil { // recorded before it is removed below
				_ = c.socket.CloseWrite()
				watch = c.of.closed(socket)
			}
		}
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
	})
	err := c.Conn.Close()
	watch()
	return err
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
