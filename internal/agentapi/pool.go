package agentapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// streamsPerConn keeps every stream's window free for itself: stalled streams
	// hold at most their own windows, and all windows of a connection together are
	// its window. With more streams on it, a few stalled ones would stop the rest.
	streamsPerConn = MaxInFlight / StreamWindow
	// maxConns bounds what one client opens to one agent.
	maxConns = 256
	// maxIdleConns stay open for the next burst.
	maxIdleConns = 2
	// idleTime is how long they do. It is less than quiet: a sandbox that nobody uses
	// is never woken by a connection that nobody uses.
	idleTime = 10 * time.Second
	// stuckWrite ends a connection whose other side has not taken a byte for so long.
	stuckWrite = 30 * time.Second
	// quiet is how long a connection may bring nothing until the agent is made to
	// send something: it finds dead connections, and wakes a port forwarding that
	// sleeps on bytes although the agent nudged it (package agent, nudge.go).
	quiet = 15 * time.Second
	// silent ends a connection on which the agent does not even answer to that.
	silent = 30 * time.Second
	// silence ends a connection on which the agent has not said a byte so long after
	// it was made: it greets at once, so nobody is there, or the transport lost it.
	silence = 3 * time.Second
	// maxHeaderBytes bounds the headers of one answer.
	maxHeaderBytes = 16 << 10
)

// pool holds the connections to one agent.
type pool struct {
	dial   DialFunc
	shared *Memory

	mu     sync.Mutex
	owner  string  // guarded by mu; whose the client is, "" for nobody
	held   int64   // guarded by mu; bytes that streams may hold, see reserve
	closed bool    // guarded by mu
	conns  []*conn // guarded by mu; all that are dialed, open, or dead with streams not yet released
}

// conn is one connection, from the moment it is dialed.
type conn struct {
	pool   *pool
	window int           // of each stream
	ready  chan struct{} // closed when cc or err is set
	cc     *http.ClientConn
	err    error
	cancel context.CancelFunc // ends the dial

	closed  bool        // guarded by pool.mu: it was given up
	streams int         // guarded by pool.mu: slots taken
	uses    int         // guarded by pool.mu: slots taken so far
	broken  atomic.Bool // the transport itself failed, as opposed to what was said on it
	silent  atomic.Bool // it is broken because nothing was said on it
	mute    atomic.Bool // it is broken because the agent did not answer on it for long
}

// acquire takes a stream slot on a connection, dialing one when all are taken.
// fresh says that no request has been answered on it before. Transfers get a whole
// window for longer than other streams.
func (p *pool) acquire(ctx context.Context, avoid *conn, transfer bool) (c *conn, fresh bool, err error) {
	c, fresh, err = p.slot(ctx, avoid, transfer)
	if err != nil {
		return nil, false, err
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		p.release(c)
		return nil, false, context.Cause(ctx)
	}
	if c.err != nil {
		p.release(c)
		return nil, false, fmt.Errorf("%w: %w", ErrUnreachable, c.err)
	}
	return c, fresh, nil
}

// slot takes a slot without waiting. A connection other than avoid is taken.
func (p *pool) slot(ctx context.Context, avoid *conn, transfer bool) (*conn, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, fmt.Errorf("%w: %w", ErrUnreachable, net.ErrClosed)
	}
	for _, window := range []int{StreamWindow, narrowWindow} {
		if !p.reserve(cost(window), window > narrowWindow && !transfer) {
			continue
		}
		if c, fresh := p.slotOf(ctx, avoid, window, transfer); c != nil {
			return c, fresh, nil
		}
		p.free(cost(window))
	}
	if len(p.conns) < maxConns {
		return nil, false, errMemory
	}
	return nil, false, &Error{Code: CodeTooMany, Message: fmt.Sprintf("more than %d calls to one sandbox at the same time", maxConns*streamsPerConn)}
}

// cost is what a stream may make this process hold.
func cost(window int) int64 { return int64(window) + streamOverhead }

// slotOf takes a slot with that window, on a new connection when there is none.
// It returns nil when there may be no more of them.
//
// Preconditions: p.mu is held.
func (p *pool) slotOf(ctx context.Context, avoid *conn, window int, transfer bool) (c *conn, fresh bool) {
	wide := wideStreams
	if transfer {
		wide = wideTransfers
	}
	open := 0
	for _, o := range p.conns {
		if o.window != window {
			continue
		}
		open += o.streams
		if c == nil && o != avoid && o.streams < streamsPerConn && !o.dead() {
			c = o
		}
	}
	switch {
	case window > narrowWindow && open >= wide:
		return nil, false
	case c != nil:
		c.streams++
		c.uses++
		return c, false
	case len(p.conns) >= maxConns:
		return nil, false
	}
	dialCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c = &conn{pool: p, window: window, ready: make(chan struct{}), cancel: cancel, streams: 1, uses: 1}
	p.conns = append(p.conns, c)
	go c.connect(dialCtx)
	return c, true
}

// release gives a slot back. A connection that has none taken is closed when
// nobody waits for its dial any more, when it is dead, when enough are idle, and
// when it was idle for long.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(cost(c.window))
	if c.streams--; c.streams > 0 {
		return
	}
	idle := 0
	for _, o := range p.conns {
		if o.streams == 0 && !o.dead() {
			idle++
		}
	}
	if idle > maxIdleConns || !c.dialed() || c.dead() {
		p.drop(c)
		return
	}
	uses := c.uses
	time.AfterFunc(idleTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.uses == uses {
			p.drop(c)
		}
	})
}

// giveUp ends a connection on which the agent does not answer.
func (p *pool) giveUp(c *conn) {
	c.mute.Store(true)
	c.broken.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.close()
}

// drop closes a connection that has no slot taken.
//
// Preconditions: p.mu is held.
func (p *pool) drop(c *conn) {
	p.conns = slices.DeleteFunc(p.conns, func(o *conn) bool { return o == c })
	c.close()
}

// closeAll ends every connection and makes every later acquire fail.
func (p *pool) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.close()
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.streams == 0 })
}

// reset ends every connection; later calls dial again.
func (p *pool) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.broken.Store(true)
		c.close()
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.streams == 0 })
}

// dialed says whether the dial has ended, well or not.
func (c *conn) dialed() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// dead says that no new stream can be opened on c.
//
// Preconditions: pool.mu is held.
func (c *conn) dead() bool {
	return c.closed || c.dialed() && (c.err != nil || c.cc.Err() != nil || c.broken.Load())
}

// close ends the dial or the connection and all its streams.
//
// Preconditions: pool.mu is held.
func (c *conn) close() {
	c.closed = true
	c.cancel()
	if c.cc != nil {
		c.cc.Close()
	}
}

// adopt makes cc the connection's, unless that was given up while it was dialed:
// nobody would close it any more.
func (c *conn) adopt(cc *http.ClientConn) error {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.closed {
		cc.Close()
		return net.ErrClosed
	}
	c.cc = cc
	return nil
}

// connect dials and starts HTTP/2.
func (c *conn) connect(ctx context.Context) {
	defer close(c.ready)
	nc, err := c.pool.dial(ctx)
	if err != nil {
		c.err = err
		return
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	watched := &watchedConn{Conn: nc, broken: &c.broken}
	watched.greeting = time.AfterFunc(silence, func() {
		c.silent.Store(true)
		c.broken.Store(true)
		nc.Close()
	})
	t := newTransport(watched, c.window)
	cc, err := t.NewClientConn(ctx, "http", "agent:0")
	if err == nil {
		err = c.adopt(cc)
	}
	stop()
	if err != nil {
		watched.Close()
		c.err = err
	}
}

// newTransport returns a transport that speaks HTTP/2 on nc and has at most so
// many bytes of a stream unread.
func newTransport(nc net.Conn, window int) *http.Transport {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return nc, nil },
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2:                  windows(window),
	}
}

// watchedConn notes when the transport fails, so that a dead transport can be
// told from an agent that talks nonsense over a good one.
type watchedConn struct {
	net.Conn
	broken   *atomic.Bool
	greeting *time.Timer // stopped by the agent's first byte
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.greeting.Stop()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.broken.Store(true)
	}
	return n, err
}

func (w *watchedConn) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.broken.Store(true)
	}
	return n, err
}

// Close ends the connection.
func (w *watchedConn) Close() error {
	w.greeting.Stop()
	return w.Conn.Close()
}
