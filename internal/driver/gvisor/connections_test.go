package gvisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/sandbox"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (ours, agents net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		conns[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { conns[1].Close() })
	return conns[0], conns[1]
}

// leave makes a connection, sends content on it, closes it, and returns the other end.
func (c *connections) leave(t *testing.T, content string) net.Conn {
	t.Helper()
	made, err := c.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer made()
	ours, agents := pair(t)
	ours = c.track(ours, true)
	if content != "" {
		if _, err := ours.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	ours.Close()
	return agents
}

// TestOpenConnectionsAreLimited: both clients of an agent have all their connections at a time, also when the agent keeps
// some that were closed, and there are not many more.
func TestOpenConnectionsAreLimited(t *testing.T) {
	c := newConnections()
	var kept []net.Conn
	for range maxClosing - 1 {
		kept = append(kept, c.leave(t, "unread"))
	}
	var ends []func()
	for range 2 * 256 {
		made, err := c.begin(t.Context())
		if err != nil {
			t.Fatalf("begin of connection %d = %v", len(ends), err)
		}
		ends = append(ends, made)
	}
	for c.beginNow() {
		if c.made > maxSockets {
			t.Fatal("the connections of a box are not limited")
		}
	}
	if n := c.kept(); n+c.made != maxSockets {
		t.Errorf("%d connections can be made beside %d that are closed", c.made, n)
	}
	kept[0].Close()
	if _, err := c.begin(t.Context()); err != nil {
		t.Errorf("begin after the agent closed a connection = %v", err)
	}
	before := c.made
	for _, end := range ends {
		end()
	}
	if c.made != before-len(ends) {
		t.Errorf("%d connections are being made after %d of %d were made", c.made, len(ends), before)
	}
}

// TestKeptConnectionsAreLimited: an agent keeps few closed connections whose bytes it has not read, and not very many others.
func TestKeptConnectionsAreLimited(t *testing.T) {
	c := newConnections()
	var unread []net.Conn
	for range maxClosing {
		unread = append(unread, c.leave(t, "unread"))
	}
	if _, err := c.begin(t.Context()); sandbox.CodeOf(err) != sandbox.AgentUnreachable {
		t.Errorf("begin while the agent keeps the bytes of %d connections = %v", maxClosing, err)
	}
	for _, agents := range unread {
		if _, err := agents.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	var kept []net.Conn
	for c.kept() < maxKept {
		kept = append(kept, c.leave(t, ""))
	}
	if _, err := c.begin(t.Context()); sandbox.CodeOf(err) != sandbox.AgentUnreachable {
		t.Errorf("begin while the agent keeps %d connections = %v", maxKept, err)
	}
	ask := func(context.Context, int) error { t.Error("the agent got one more connection"); return nil }
	if err := c.hangUp(t.Context(), ask); !errors.Is(err, errKept) {
		t.Errorf("hangUp while the agent keeps %d connections = %v", maxKept, err)
	}
	for _, agents := range append(unread, kept...) {
		agents.Close()
	}
	if !until(t.Context(), time.Millisecond, func() bool { return c.kept() == 0 }) {
		t.Error("connections that the agent closed are kept")
	}
}

// flood sends so much on a connection, or until that takes longer than limit, and returns how much it sent.
func flood(conn net.Conn, size int, limit time.Duration) int {
	_ = conn.SetWriteDeadline(time.Now().Add(limit))
	n, _ := conn.Write(make([]byte, size))
	return n
}

// TestUnreadAnswersAreLimited: an agent that goes on sending on connections that were closed keeps few of them, and what it
// sends on one is not read without end.
func TestUnreadAnswersAreLimited(t *testing.T) {
	c := newConnections()
	var sending []net.Conn
	for c.beginNow() {
		c.made--
		if len(sending) == maxKept {
			break
		}
		agents := c.leave(t, "")
		if n := flood(agents, maxDrained+1, time.Minute); n != maxDrained+1 {
			t.Fatalf("%d bytes of an agent that is sending are taken, want %d", n, maxDrained+1)
		}
		sending = append(sending, agents)
	}
	if len(sending) != maxClosing {
		t.Errorf("an agent keeps answers of %d closed connections, want %d", len(sending), maxClosing)
	}
	if n := flood(sending[0], 2*maxDrained, time.Second); n > 2*socketBuffer {
		t.Errorf("%d more bytes of a closed connection are taken", n)
	}
	for _, agents := range sending {
		agents.Close()
	}
	if !until(t.Context(), time.Millisecond, func() bool { return c.kept() == 0 }) {
		t.Error("connections that the agent closed are kept")
	}
}

// TestLateAnswersAreLimited: an agent that was silent when many connections were closed, and then sends on all of them, fills few,
// also when it does so again.
func TestLateAnswersAreLimited(t *testing.T) {
	c := newConnections()
	for range 2 {
		var silent []net.Conn
		for range maxClosing + 32 {
			silent = append(silent, c.leave(t, ""))
		}
		c.mu.Lock()
		closing := slices.Collect(maps.Keys(c.closing))
		c.mu.Unlock()
		for _, agents := range silent {
			flood(agents, maxDrained, time.Minute)
			flood(agents, 2*socketBuffer, 10*time.Millisecond)
		}
		full := 0
		wait, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if !until(wait, time.Millisecond, func() bool { // the last bytes may still be read
			full = 0
			for _, socket := range closing {
				if raw, err := socket.SyscallConn(); err == nil && queued(raw, unix.SIOCINQ) > 0 {
					full++
				}
			}
			return full <= maxClosing
		}) {
			t.Errorf("an agent keeps answers on %d closed connections, want %d at most", full, maxClosing)
		}
		cancel()
		if full == 0 {
			t.Error("no connection is full, so this test shows nothing")
		}
		for _, agents := range silent {
			agents.Close()
		}
		if !until(t.Context(), time.Millisecond, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.closing)+c.flooded == 0
		}) {
			t.Error("connections that the agent closed are kept")
		}
	}
}

// TestClosedConnectionsAreSmall: the goroutines that wait for the end of closed connections have small stacks.
func TestClosedConnectionsAreSmall(t *testing.T) {
	c := newConnections()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range maxKept - 1 {
		c.leave(t, "")
	}
	runtime.ReadMemStats(&after)
	if after.StackInuse > before.StackInuse+maxKept*(12<<10) {
		t.Errorf("the stacks of %d closed connections take %d bytes", maxKept, after.StackInuse-before.StackInuse)
	}
	c.end()
}

// TestAnswersInTransitDoNotCount: what was in transit when connections were closed does not prevent new connections.
func TestAnswersInTransitDoNotCount(t *testing.T) {
	c := newConnections()
	for range 2 * maxClosing {
		ours, agents := pair(t)
		tracked := c.track(ours, true)
		if flood(agents, 128<<10, time.Minute) == 0 {
			t.Fatal("nothing was sent")
		}
		tracked.Close()
	}
	made, err := c.begin(t.Context())
	if err != nil {
		t.Fatalf("begin = %v", err)
	}
	made()
}

// TestHangUpErrors: a box that has ended has hung up, and an error of this process is not the agent's.
func TestHangUpErrors(t *testing.T) {
	c := newConnections()
	ours, agents := pair(t)
	if c.track(ours, true) == nil {
		t.Fatal("track = nil")
	}
	ended := func(context.Context, int) error {
		agents.Close()
		return fmt.Errorf("%w: %w", control.ErrNotAsked, unix.ECONNREFUSED)
	}
	if err := c.hangUp(t.Context(), ended); err != nil {
		t.Errorf("hangUp of a box that ends = %v", err)
	}
	ask := func(context.Context, int) error { return unix.EMFILE }
	if err := c.hangUp(t.Context(), ask); !errors.Is(err, unix.EMFILE) {
		t.Errorf("hangUp without descriptors = %v", err)
	}
}

// TestHangUpIsCounted: an agent that keeps the connection on which it is asked to hang up has one more connection.
func TestHangUpIsCounted(t *testing.T) {
	c := newConnections()
	ctx, cancel := context.WithCancel(t.Context())
	var agents int
	ask := func(_ context.Context, fd int) (err error) {
		agents, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		time.AfterFunc(10*time.Millisecond, cancel)
		return err
	}
	if err := c.hangUp(ctx, ask); !errors.Is(err, context.Canceled) {
		t.Errorf("hangUp = %v, want that it was cancelled", err)
	}
	if n := c.kept(); n != 1 {
		t.Errorf("the agent keeps %d connections, want 1", n)
	}
	unix.Close(agents)
	if !until(t.Context(), time.Millisecond, func() bool { return c.kept() == 0 }) {
		t.Error("a connection that the agent closed is kept")
	}
}

// TestFailedDialsDoNotCount: connections that could not be made are not being made.
func TestFailedDialsDoNotCount(t *testing.T) {
	b := &box{gvisor: control.New(t.TempDir(), "box", 0), conns: newConnections(), ended: make(chan struct{}), handover: true}
	close(b.ended)
	if _, err := b.dialAgent(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("dialAgent of a box that has ended = %v", err)
	}
	if b.conns.made != 0 || len(b.conns.open) != 0 {
		t.Errorf("%d connections are being made, %d are open", b.conns.made, len(b.conns.open))
	}
}
