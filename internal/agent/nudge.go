package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

// gVisor's port forwarding, which carries connections of hosts that hand none over, can miss the arrival
// of bytes: it finds none and registers for a notification, and bytes that arrive between the two
// cause no notification until more arrive. On a loaded machine, about one answer in a thousand is
// lost that way. Therefore the agent sends a few frames without meaning after the last write of a
// burst.

// nudges are the pauses before each of these frames; the notification of a single frame could be
// lost also.
var nudges = []time.Duration{4 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// nudge is an HTTP/2 frame that every client ignores: the answer to a ping that nobody sent (RFC
// 9113 section 6.7).
var nudge = []byte{0, 0, 8, 6, 1, 0, 0, 0, 0, 'm', 'o', 'd', 'b', 'o', 'x', 0, 0}

// frameHeader is the length of an HTTP/2 frame's header; its first three bytes are the length of
// the payload.
const frameHeader = 9

// nudgingListener wraps the connections that it accepts in nudgingConn.
type nudgingListener struct {
	net.Listener
	conns *conns
	whole bool // its connections lose no wake-up and need no nudges
}

func (l nudgingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	for errors.Is(err, errHangUp) {
		l.conns.closeWhole()
		_ = c.Close() // the error does not matter
		c, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	n := &nudgingConn{Conn: c, conns: l.conns, whole: l.whole, in: bufio.NewReaderSize(c, readBuffer)}
	l.conns.add(n)
	return n, nil
}

// readBuffer holds the frames of small messages. The HTTP/2 server reads the header of a frame and
// then the payload; the buffer makes that one system call, which is expensive here. A connection
// that fills it, because files are being transferred, gets a buffer for whole frames.
const (
	readBuffer      = 4 << 10
	largeReadBuffer = agentapi.MaxFrame + frameHeader
	wholeReadBuffer = 256 << 10 // of a connection that was handed over, where more may be in transit
)

// nudgingConn is the server's side of an HTTP/2 connection.
type nudgingConn struct {
	net.Conn
	conns *conns // the set that contains it until it is closed; may be nil
	in    *bufio.Reader
	full  bool // a read filled the small buffer
	whole bool // it needs no nudges
	// tunnel makes the read buffer small, because a box may have many tunnels. It is set before the first read of the data.
	tunnel bool

	mu     sync.Mutex
	header [frameHeader]byte  // of the frame being written; guarded by mu
	have   int                // bytes of header; guarded by mu
	left   int                // bytes of the frame still to come; guarded by mu
	timer  *time.Timer        // guarded by mu
	next   int                // index of the next nudge; guarded by mu
	closed bool               // guarded by mu
	cancel context.CancelFunc // guarded by mu; ends the requests on it; nil before it is served
}

// Read reads from the connection through the buffer.
func (c *nudgingConn) Read(p []byte) (int, error) {
	large := largeReadBuffer
	if c.whole && !c.tunnel {
		large = wholeReadBuffer
	}
	if c.full && c.in.Buffered() == 0 && c.in.Size() < large {
		c.in = bufio.NewReaderSize(c.Conn, large)
	}
	n, err := c.in.Read(p)
	c.full = c.full || n+c.in.Buffered() >= readBuffer
	if c.whole && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		// The host has hung up. It waits until this end is closed, and may read nothing until then.
		_ = c.Conn.SetWriteDeadline(time.Now())
	}
	return n, err
}

// hungUp reports whether the host has closed the connection, also while bytes of it are unread.
func (c *nudgingConn) hungUp() bool {
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0
	})
	return err != nil || gone
}

// Write writes p and schedules nudges after it.
func (c *nudgingConn) Write(p []byte) (int, error) {
	if c.whole {
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.follow(p[:n])
	if err == nil && !c.closed {
		c.next = 0
		if c.timer == nil {
			c.timer = time.AfterFunc(nudges[0], c.nudge)
		} else {
			c.timer.Reset(nudges[0])
		}
	}
	return n, err
}

// follow tracks where frames end.
//
// Preconditions: c.mu is held.
func (c *nudgingConn) follow(p []byte) {
	for len(p) > 0 {
		if c.left > 0 {
			n := min(c.left, len(p))
			c.left -= n
			p = p[n:]
			continue
		}
		n := copy(c.header[c.have:], p)
		c.have += n
		p = p[n:]
		if c.have == frameHeader {
			c.left = int(binary.BigEndian.Uint32(c.header[:4]) >> 8)
			c.have = 0
		}
	}
}

// nudge sends the next nudge, unless a frame is only half written: then another write follows
// anyway.
func (c *nudgingConn) nudge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.have > 0 || c.left > 0 || c.next >= len(nudges) {
		return
	}
	if _, err := c.Conn.Write(nudge); err != nil {
		return // the connection's reader gets the error
	}
	if c.next++; c.next < len(nudges) {
		c.timer.Reset(nudges[c.next])
	}
}

// Close stops nudging, and ends the requests: they may be busy for long with bytes that arrived before.
// It does not wait for a write that is blocked.
func (c *nudgingConn) Close() error {
	err := c.Conn.Close()
	if c.conns != nil {
		c.conns.remove(c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.cancel != nil {
		c.cancel()
	}
	return err
}
