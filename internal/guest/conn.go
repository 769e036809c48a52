package guest

import (
	"net"
	"sync/atomic"
	"time"
)

// conn is a connection into a sandbox. It counts as activity while it is open. Its last
// activity is its last byte, not its close: clients close idle connections late. If a save of
// the sandbox breaks it, its errors have a code.
type conn struct {
	net.Conn
	call    *call
	tunnel  bool // through the agent: every save breaks it
	closed  atomic.Bool
	release func() // ends the activity
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.call.box.Activity.At(time.Now())
	}
	return n, c.explain(err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.call.box.Activity.At(time.Now())
	}
	return n, c.explain(err)
}

// explain gives an error that a save caused its code.
func (c *conn) explain(err error) error {
	if c.closed.Load() {
		return err
	}
	return c.call.explain(err, c.tunnel)
}

func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.release()
	}
	return c.Conn.Close()
}

// halfCloser is a connection of which one direction can be closed.
type halfCloser interface {
	// CloseWrite closes the direction to the sandbox.
	CloseWrite() error
}

// halfConn is a conn for a halfCloser.
type halfConn struct{ *conn }

func (c halfConn) CloseWrite() error { return c.Conn.(halfCloser).CloseWrite() }

// conn counts opened, a connection that was made during the call, as activity of its box until
// it is closed. A tunnel leads through the agent.
func (c *call) conn(opened net.Conn, tunnel bool) net.Conn {
	wrapped := &conn{Conn: opened, call: c, tunnel: tunnel, release: c.box.Activity.Open()}
	if _, ok := opened.(halfCloser); ok {
		return halfConn{wrapped}
	}
	return wrapped
}
