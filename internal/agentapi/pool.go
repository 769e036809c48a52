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
	// streamsPerConn leaves every stream its whole window: stalled streams occupy at most their own
	// windows, and the windows of all streams together are the window of the connection. With more
	// streams, a few stalled streams would block the rest.
	streamsPerConn = MaxInFlight / StreamWindow
	// maxConns bounds the connections of a client to an agent.
	maxConns = 256
	// maxLargeConns bounds the connections for one large transfer each. Others share connections.
	maxLargeConns = 32
	// maxTunnelConns bounds the connections for one tunnel each. Others share connections.
	maxTunnelConns = 128
	// maxIdleConns is how many connections stay open for the next burst.
	maxIdleConns = 2
	// idleTime is how long idle connections stay open. It is less than quiet, so that pings on an
	// unused connection never wake an unused sandbox.
	idleTime = 10 * time.Second
	// stuckWrite is after how long a connection is closed when the other side accepts no bytes.
	stuckWrite = 30 * time.Second
	// quiet is how long a connection may be without data before a ping makes the agent send
	// something. That finds dead connections, and wakes a port forwarding that did not notice bytes
	// despite the agent's nudges (package agent, nudge.go).
	quiet = 15 * time.Second
	// silent is after how long a connection is closed when the agent does not answer the ping.
	silent = 30 * time.Second
	// silence is how long a new connection may be without a byte from the agent. The agent sends
	// its settings at once; so nobody listens, or the transport lost them.
	silence = 3 * time.Second
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 16 << 10
)

// pool holds the connections to one agent.
type pool struct {
	dial   DialFunc
	shared *Memory

	mu       sync.Mutex
	owner    string // guarded by mu; whose the client is, "" for nobody
	reserved int64  // guarded by mu; bytes that streams may buffer, see reserve
	closed   bool   // guarded by mu
	// forwarded is whether connections are not [Direct], which one call alone gains nothing from. Guarded by mu.
	forwarded bool
	// sharedTunnels is whether the agent knows no tunnels with connections of their own. Guarded by mu.
	sharedTunnels bool
	conns         []*conn // guarded by mu; connections being dialed, open, or dead with streams not yet released
}

// conn is a connection, from the moment it is dialed.
type conn struct {
	pool   *pool
	window int           // receive window of each stream
	single bool          // set before ready is closed; it speaks HTTP/1.1
	large  bool          // it is for one call
	tunnel bool          // it is for a tunnel
	nc     net.Conn      // set with cc; the connection beneath it
	over   chan struct{} // set before ready is closed, if single; closed when the agent can send no more
	ready  chan struct{} // closed when cc, single or err is set
	cc     *http.ClientConn
	err    error
	cancel context.CancelFunc // ends the dial

	closed  bool        // guarded by pool.mu; it was given up
	streams int         // guarded by pool.mu; slots in use
	uses    int         // guarded by pool.mu; slots taken so far
	broken  atomic.Bool // the transport itself failed, as opposed to the content of an answer
	silent  atomic.Bool // it is broken because no byte arrived on it
	mute    atomic.Bool // it is broken because the agent did not answer on it for long
}

// acquire takes a stream slot on a connection, and dials a new connection when all slots are taken.
// fresh is whether no request has been answered on it before. Transfers get a full window up to a
// higher number of streams than other calls. A large transfer and a tunnel have a connection of their own.
func (p *pool) acquire(ctx context.Context, avoid *conn, r request) (c *conn, fresh bool, err error) {
	c, fresh, err = p.slot(ctx, avoid, r)
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

// slot takes a slot without waiting, on any connection except avoid.
func (p *pool) slot(ctx context.Context, avoid *conn, r request) (*conn, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, fmt.Errorf("%w: %w", ErrUnreachable, net.ErrClosed)
	}
	for _, window := range []int{StreamWindow, narrowWindow} {
		if !p.reserve(cost(window), window > narrowWindow && !r.transfer) {
			continue
		}
		if c, fresh := p.slotOf(ctx, avoid, window, r); c != nil {
			return c, fresh, nil
		}
		p.free(cost(window))
	}
	if len(p.conns) < maxConns {
		return nil, false, errMemory
	}
	return nil, false, &Error{Code: CodeTooMany, Message: fmt.Sprintf("more than %d concurrent calls to the sandbox", maxConns*streamsPerConn)}
}

// cost is how many bytes a stream may make this process buffer.
func cost(window int) int64 { return int64(window) + streamOverhead }

// slotOf takes a slot with that window, on a new connection if necessary. It returns nil when there
// are too many connections.
//
// Preconditions: p.mu is held.
func (p *pool) slotOf(ctx context.Context, avoid *conn, window int, r request) (c *conn, fresh bool) {
	wide := wideStreams
	if r.transfer {
		wide = wideTransfers
	}
	open, large, tunnels := 0, 0, 0
	for _, o := range p.conns {
		switch {
		case o.tunnel:
			tunnels++
		case o.large:
			large++
		}
	}
	own := (r.large && large < maxLargeConns || r.tunnel && tunnels < maxTunnelConns && !p.sharedTunnels) && !p.forwarded
	for _, o := range p.conns {
		if o.window != window {
			continue
		}
		open += o.streams
		if c == nil && o != avoid && !o.large && !own && o.streams < streamsPerConn && !o.dead() {
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
	c = &conn{pool: p, window: window, large: own, tunnel: own && r.tunnel, ready: make(chan struct{}), cancel: cancel, streams: 1, uses: 1}
	p.conns = append(p.conns, c)
	go c.connect(dialCtx)
	return c, true
}

// release returns a slot. It closes a connection without used slots if nobody waits for its dial
// any more, if it is dead, if enough others are idle, or if it was idle for long.
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
	if idle > maxIdleConns || c.large || !c.dialed() || c.dead() {
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

// giveUp closes a connection on which the agent does not answer.
func (p *pool) giveUp(c *conn) {
	c.mute.Store(true)
	c.broken.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.close()
}

// drop closes a connection that has no used slots.
//
// Preconditions: p.mu is held.
func (p *pool) drop(c *conn) {
	p.conns = slices.DeleteFunc(p.conns, func(o *conn) bool { return o == c })
	c.close()
}

// closeAll closes every connection and makes every later acquire fail.
func (p *pool) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.close()
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.streams == 0 })
}

// shareTunnels makes later tunnels share connections.
func (p *pool) shareTunnels() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sharedTunnels = true
}

// reset closes every connection; later calls dial again.
func (p *pool) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.broken.Store(true)
		c.close()
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.streams == 0 })
}

// dialed reports whether the dial has ended, successfully or not.
func (c *conn) dialed() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// dead reports whether no new stream can be opened on c.
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
		c.nc.Close() // a tunnel has taken it from cc
	}
}

// adopt sets the HTTP/2 connection, unless c was given up while it was dialed: then nobody else
// would close cc.
func (c *conn) adopt(cc *http.ClientConn, nc net.Conn) error {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.closed {
		cc.Close()
		return net.ErrClosed
	}
	c.cc, c.nc = cc, nc
	return nil
}

// connect dials and starts HTTP.
func (c *conn) connect(ctx context.Context) {
	defer close(c.ready)
	nc, err := c.pool.dial(ctx)
	if err != nil {
		c.err = err
		return
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	direct, ok := nc.(Direct)
	c.single = c.large && ok && direct.Direct()
	if c.large && !c.single {
		c.pool.mu.Lock()
		c.pool.forwarded = true
		c.pool.mu.Unlock()
	}
	watched := &watchedConn{Conn: nc, broken: &c.broken}
	t := newTransport(watched, c.window)
	if c.single {
		c.over = make(chan struct{})
		watched.over = c.over
		t = newSingleTransport(watched, c.window)
	} else {
		watched.greeting = time.AfterFunc(silence, func() {
			c.silent.Store(true)
			c.broken.Store(true)
			nc.Close()
		})
	}
	cc, err := t.NewClientConn(ctx, "http", "agent:0")
	if err == nil {
		err = c.adopt(cc, watched)
	}
	stop()
	if err != nil {
		watched.Close()
		c.err = err
	}
}

// newTransport returns a transport that speaks HTTP/2 on nc and has at most window unread bytes per
// stream.
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

// Direct is a connection that can reach the agent without gVisor's port forwarding, which loses data when much is in
// transit. On such a connection the agent also understands HTTP/1.1.
type Direct interface {
	// Direct reports whether the connection reaches the agent without port forwarding. It does not fail.
	Direct() bool
}

// The first byte of a message by which the host hands a connection over, whose descriptor comes with it.
const (
	// Connection is for a connection that the agent serves.
	Connection byte = iota
	// HangUp is for a connection that the agent closes after all that were handed over before.
	HangUp
)

// LargeTransfer is from how many bytes on content gets a connection of its own, if connections are [Direct] and few
// transfers have one.
const LargeTransfer = 256 << 10

// newSingleTransport returns a transport that speaks HTTP/1.1 on nc, for one call that costs as much as a stream with that window.
func newSingleTransport(nc net.Conn, window int) *http.Transport {
	buffer := singleBuffer
	if window == narrowWindow {
		buffer /= 2 // so that it costs no more than is counted
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return nc, nil },
		Protocols:              &protocols,
		DisableCompression:     true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		WriteBufferSize:        buffer,
	}
}

// singleBuffer is the size of the writes to a connection that serves a single transfer.
const singleBuffer = 256 << 10

// watchedConn records when the transport fails, to distinguish a dead transport from an agent that
// sends invalid data over a working transport.
type watchedConn struct {
	net.Conn
	broken   *atomic.Bool
	closed   atomic.Bool // by this package; the driver closes connections also
	greeting *time.Timer // stopped by the agent's first byte; nil for HTTP/1.1, where the agent only answers
	// over, for HTTP/1.1, is closed when nothing more can be read.
	over chan struct{}
	once sync.Once
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.greeted()
	if err != nil {
		w.ended()
	}
	if err != nil && !(errors.Is(err, net.ErrClosed) && w.closed.Load()) {
		w.broken.Store(true)
	}
	return n, err
}

func (w *watchedConn) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil && w.over != nil {
		// The agent may have answered before it closed the connection. The error of a write would hide it.
		select {
		case <-w.over:
		case <-time.After(answerAfterEnd):
		}
	}
	if err != nil && !(errors.Is(err, net.ErrClosed) && w.closed.Load()) {
		w.broken.Store(true)
	}
	return n, err
}

// answerAfterEnd limits the time to read the answer of an agent that has closed the connection.
const answerAfterEnd = 2 * time.Second

// Close ends the connection.
func (w *watchedConn) Close() error {
	w.closed.Store(true)
	w.greeted()
	w.ended()
	return w.Conn.Close()
}

func (w *watchedConn) greeted() {
	if w.greeting != nil {
		w.greeting.Stop()
	}
}

func (w *watchedConn) ended() {
	if w.over != nil {
		w.once.Do(func() { close(w.over) })
	}
}
