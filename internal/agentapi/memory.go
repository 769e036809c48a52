package agentapi

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// narrowWindow is the [StreamWindow] of the streams that come after the first
	// ones. A short answer needs no more, a long one takes some twice as long.
	narrowWindow = 64 << 10
	// wideStreams have the whole window at a time, transfers of files more than the
	// others, which may live long without saying much.
	wideStreams, wideTransfers = 24, 32
	// streamOverhead is what a stream holds at most beside its window: a frame that
	// is read and one that is written.
	streamOverhead = 2 * MaxFrame
	// ownMemory is what the streams of one client may hold whatever others hold.
	ownMemory = 4 << 20
	// unpaidJSON of an answer are held without being counted.
	unpaidJSON = streamOverhead
)

// Memory bounds what agents, and callers who do not read, make this process hold
// for the streams of several clients together, and what callers hold beside them
// (see [Client.Hold]). Each client has a few megabytes of its own beside it. Clients that
// belong to somebody share fairly: those of each have at most twice of what they leave to
// others, and as much with what is spare. It is safe for concurrent use.
type Memory struct {
	size int64
	// patience is how long an agent may be silent while a call waits for its answer; 0
	// for as long as the call waits.
	patience time.Duration

	mu   sync.Mutex
	left int64            // guarded by mu
	has  map[string]int64 // by whose the clients are, those of nobody left out; guarded by mu
}

// NewMemory returns a Memory of so many bytes.
func NewMemory(size int64) *Memory {
	return &Memory{size: size, left: size, has: map[string]int64{}}
}

// SetPatience bounds for how long an agent may be silent while a call waits for
// its answer: a call that takes longer goes on as long as the agent answers others.
// It is for clients made afterwards; 0, the default, is no bound.
func (m *Memory) SetPatience(d time.Duration) { m.patience = d }

// NewClient returns a client for the agent that dial reaches, whose streams count
// towards m. Calls that find no memory left fail with [CodeTooMany].
func (m *Memory) NewClient(dial DialFunc) *Client {
	c := &Client{pool: &pool{dial: dial, shared: m}}
	c.Files.client = c
	return c
}

// BelongTo says whose the client is from now on, such as a workspace, all clients of which
// share fairly with those of others; "" is nobody.
func (c *Client) BelongTo(owner string) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	beyond := max(0, p.held-ownMemory)
	p.shared.give(p.owner, beyond)
	p.owner = owner
	p.shared.force(owner, beyond)
}

// take takes n bytes for the clients of an owner, who then have at most twice of what is
// left. With spare it leaves as much as they have, and of nobody's half of what is shared.
func (m *Memory) take(owner string, n int64, spare bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	left, mine := m.left-n, m.has[owner]+n
	most := 2 * left
	if spare {
		most = left
	}
	switch {
	case left < 0, owner != "" && mine > most, owner == "" && spare && left < m.size/2:
		return false
	}
	m.count(owner, n)
	return true
}

// force is take for what is held already.
func (m *Memory) force(owner string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(owner, n)
}

// count counts n bytes, or with -n that they are given back.
//
// Preconditions: m.mu is held.
func (m *Memory) count(owner string, n int64) {
	m.left -= n
	if owner == "" || n == 0 {
		return
	}
	if m.has[owner] += n; m.has[owner] == 0 {
		delete(m.has, owner)
	}
}

// give gives n bytes back.
func (m *Memory) give(owner string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(owner, -n)
}

// HoldFor counts n bytes that an owner holds beside what its clients do, until
// [Memory.FreeFor], and reports whether it may have as many. With spare it leaves more
// to others.
func (m *Memory) HoldFor(owner string, n int64, spare bool) bool { return m.take(owner, n, spare) }

// FreeFor says that n bytes of those that HoldFor counted are not held any more.
func (m *Memory) FreeFor(owner string, n int64) { m.give(owner, n) }

// reserve counts n bytes that the client is about to hold. With spare it leaves
// more of what is shared to those who need it more.
//
// Preconditions: p.mu is held.
func (p *pool) reserve(n int64, spare bool) bool {
	beyond := max(0, p.held+n-ownMemory) - max(0, p.held-ownMemory)
	if beyond > 0 && !p.shared.take(p.owner, beyond, spare) {
		return false
	}
	p.held += n
	return true
}

// free is the opposite of reserve.
//
// Preconditions: p.mu is held.
func (p *pool) free(n int64) {
	if beyond := max(0, p.held-ownMemory) - max(0, p.held-n-ownMemory); beyond > 0 {
		p.shared.give(p.owner, beyond)
	}
	p.held -= n
}

// Hold counts n bytes that its caller holds for calls to this agent beside what the
// streams do, until [Client.Free]. With spare it leaves more of what clients share
// to those who need it more. It fails with [CodeTooMany] when there is no memory left.
func (c *Client) Hold(n int64, spare bool) error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reserve(n, spare) {
		return errMemory
	}
	return nil
}

// Free says that n bytes of those that Hold counted are not held any more.
func (c *Client) Free(n int64) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(n)
}

// errMemory says that this process holds as much as it may.
var errMemory = &Error{Code: CodeTooMany, Message: "too many calls to sandboxes are under way, or too large ones; end some, or try again later"}

// json returns a JSON answer, read to its end. Its growth is counted.
func (a *answer) json(limit int) ([]byte, error) {
	var data []byte
	for {
		if len(data) == cap(data) {
			if err := a.grow(2 * int64(cap(data))); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, max(512, 2*cap(data))), data...)
		}
		n, err := a.Body.Read(data[len(data):min(cap(data), limit+1)])
		data = data[:len(data)+n]
		switch {
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		case len(data) > limit:
			return nil, fmt.Errorf("%w: more than %d bytes", ErrBadAnswer, limit)
		}
	}
}

// grow counts that the answer takes n bytes from now on.
func (a *answer) grow(n int64) error {
	more := n - unpaidJSON - a.paid
	if more <= 0 {
		return nil
	}
	p := a.conn.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reserve(more, false) {
		return errMemory
	}
	a.paid += more
	return nil
}

// repay gives back what grow took.
func (a *answer) repay() {
	p := a.conn.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(a.paid)
	a.paid = 0
}

// requestBody refuses an agent that announces larger frames than the protocol has:
// each stream would hold a buffer of that size.
type requestBody struct{ io.ReadCloser }

func (b requestBody) Read(p []byte) (int, error) {
	if len(p) > MaxFrame {
		return 0, fmt.Errorf("%w: it announces frames of %d bytes", ErrBadAnswer, len(p))
	}
	return b.ReadCloser.Read(p)
}

// windows are what one connection may have unread.
func windows(stream int) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxReceiveBufferPerConnection: max(streamsPerConn*stream, 64<<10), // HTTP/2 has no less
		MaxReceiveBufferPerStream:     stream,
		MaxReadFrameSize:              min(MaxFrame+1<<10, max(stream, 16<<10)),
		WriteByteTimeout:              stuckWrite,
		SendPingTimeout:               quiet,
		PingTimeout:                   silent,
	}
}
