package agentapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// narrowWindow is the [StreamWindow] of streams beyond the first. It suffices for a short
	// answer; a long answer takes about twice as long.
	narrowWindow = 64 << 10
	// wideStreams is how many streams at a time get the whole window. Transfers of files get it up
	// to wideTransfers, because other streams may live long and carry little.
	wideStreams, wideTransfers = 24, 32
	// streamOverhead is the most that a stream buffers in addition to its window: a frame being
	// read and a frame being written.
	streamOverhead = 2 * MaxFrame
	// ownMemory is how much the streams of each client may always buffer, regardless of other
	// clients.
	ownMemory = 4 << 20
	// unpaidJSON is how many bytes of an answer are not counted.
	unpaidJSON = streamOverhead
)

// Memory bounds how much memory this process uses for the streams of several clients together,
// because of agents that send too much and callers that do not read, and for buffers of the callers
// (see [Client.Reserve]). In addition, each client has a few megabytes of its own. Clients with an
// owner share fairly: the clients of an owner may use at most twice as much as they leave for
// others, and with spare at most as much as they leave. It is safe for concurrent use.
type Memory struct {
	size int64
	// answerTimeout is how long an agent may be silent while a call waits for its answer; 0 means
	// without limit.
	answerTimeout time.Duration
	observe       Observer // nil for none

	mu   sync.Mutex
	left int64            // bytes not reserved; guarded by mu
	has  map[string]int64 // bytes by owner, except clients without owner; guarded by mu
}

// NewMemory returns a Memory of size bytes.
func NewMemory(size int64) *Memory {
	return &Memory{size: size, left: size, has: map[string]int64{}}
}

// SetAnswerTimeout bounds how long an agent may be silent while a call waits for its answer. A call
// may take longer as long as the agent answers health checks. It applies to clients made
// afterwards; 0, the default, means without limit.
func (m *Memory) SetAnswerTimeout(d time.Duration) { m.answerTimeout = d }

// Observer is called at the beginning of each call to an agent. It returns the value of the header
// traceparent, "" for none, and the function, which may be nil, to call when the headers of the answer
// have arrived or the call has failed.
type Observer func(ctx context.Context, method, path string) (traceparent string, end func(error))

// SetObserver sets the observer of the calls of clients made afterwards; nil, the default, is none.
func (m *Memory) SetObserver(o Observer) { m.observe = o }

// NewClient returns a client for the agent that dial reaches, whose streams count towards m. Calls
// that would exceed it fail with [CodeTooMany].
func (m *Memory) NewClient(dial DialFunc) *Client {
	c := &Client{pool: &pool{dial: dial, shared: m}}
	c.Files.client = c
	return c
}

// SetOwner sets the owner of the client, such as a workspace. All clients of an owner together
// share fairly with the clients of other owners; "" is no owner.
func (c *Client) SetOwner(owner string) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	beyond := max(0, p.reserved-ownMemory)
	p.shared.give(p.owner, beyond)
	p.owner = owner
	p.shared.force(owner, beyond)
}

// take reserves n bytes for an owner's clients, which may then have at most twice of the remaining bytes.
// With yield they must leave as much as they have, and clients without owner must leave half of the
// total.
func (m *Memory) take(owner string, n int64, yield bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	left, mine := m.left-n, m.has[owner]+n
	most := 2 * left
	if yield {
		most = left
	}
	switch {
	case left < 0, owner != "" && mine > most, owner == "" && yield && left < m.size/2:
		return false
	}
	m.count(owner, n)
	return true
}

// force is take for bytes that are in use already.
func (m *Memory) force(owner string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(owner, n)
}

// count adds n reserved bytes, or with negative n subtracts them.
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

// give releases n bytes.
func (m *Memory) give(owner string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(owner, -n)
}

// ReserveFor counts n bytes that an owner uses in addition to its clients' streams, until
// [Memory.ReleaseFor], and reports whether it may use them. With yield it leaves more to other
// owners.
func (m *Memory) ReserveFor(owner string, n int64, yield bool) bool { return m.take(owner, n, yield) }

// ReleaseFor releases n bytes of ReserveFor.
func (m *Memory) ReleaseFor(owner string, n int64) { m.give(owner, n) }

// reserve counts n bytes that the client is about to use. With yield it leaves more of the shared
// memory to other clients.
//
// Preconditions: p.mu is held.
func (p *pool) reserve(n int64, yield bool) bool {
	beyond := max(0, p.reserved+n-ownMemory) - max(0, p.reserved-ownMemory)
	if beyond > 0 && !p.shared.take(p.owner, beyond, yield) {
		return false
	}
	p.reserved += n
	return true
}

// free is the inverse of reserve.
//
// Preconditions: p.mu is held.
func (p *pool) free(n int64) {
	if beyond := max(0, p.reserved-ownMemory) - max(0, p.reserved-n-ownMemory); beyond > 0 {
		p.shared.give(p.owner, beyond)
	}
	p.reserved -= n
}

// Reserve counts n bytes that its caller uses for calls to this agent in addition to the streams,
// until [Client.Release]. With yield it leaves more of the shared memory to other clients. It fails
// with [CodeTooMany] when there is not enough memory.
func (c *Client) Reserve(n int64, yield bool) error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reserve(n, yield) {
		return errMemory
	}
	return nil
}

// Release releases n bytes of Reserve.
func (c *Client) Release(n int64) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(n)
}

// errMemory reports that this process has reached its limit.
var errMemory = &Error{Code: CodeTooMany, Message: "the calls to sandboxes in progress are too many or too large; end some, or try again later"}

// json reads a JSON answer to its end. Its size is counted as it grows.
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

// grow reserves n more bytes for the answer.
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

// repay releases what grow reserved.
func (a *answer) repay() {
	p := a.conn.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(a.paid)
	a.paid = 0
}

// requestBody refuses an agent that announces larger frames than the protocol has: each stream
// would allocate a buffer of that size.
type requestBody struct{ io.ReadCloser }

func (b requestBody) Read(p []byte) (int, error) {
	if len(p) > MaxFrame {
		return 0, fmt.Errorf("%w: it announces frames of %d bytes", ErrBadAnswer, len(p))
	}
	return b.ReadCloser.Read(p)
}

// windows returns the receive windows of a connection.
func windows(stream int) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxReceiveBufferPerConnection: max(streamsPerConn*stream, 64<<10), // HTTP/2 does not permit less
		MaxReceiveBufferPerStream:     stream,
		MaxReadFrameSize:              min(MaxFrame+1<<10, max(stream, 16<<10)),
		WriteByteTimeout:              stuckWrite,
		SendPingTimeout:               quiet,
		PingTimeout:                   silent,
	}
}
