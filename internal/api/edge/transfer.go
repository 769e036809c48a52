package edge

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// BodyTime is how long a body that is read as a whole may take to arrive.
	BodyTime = 30 * time.Second
	// idleTime is how long a body that is streamed on may not grow, and how long a
	// client may take nothing of its answer.
	idleTime = time.Minute
	// InputIdleTime is the same for the input of a command, which may be silent for long.
	InputIdleTime = time.Hour
	// restTime is how long the rest of a body is waited for that a signed-in client, or
	// a client of a sandbox, sends although its request is answered already. Others have
	// no such time.
	restTime = 5 * time.Second
	// restMax is how much of such a rest is read after an error, so that the client
	// finds the answer when it has sent all, and no reset connection.
	restMax = 256 << 20
	// rearmTime is how old a deadline for writing becomes before it is set again.
	rearmTime = 5 * time.Second
	// writePart is how much of an answer must be taken within idleTime.
	writePart = 64 << 10
)

// transfer is the way of one request's body and answer over its connection, both of
// which must go on. A handler that sets a deadline through http.ResponseController has
// its own instead of ours until it takes it away.
type transfer struct {
	http.ResponseWriter // the server's
	control             *http.ResponseController
	record              *access.Record
	http1               bool

	body io.ReadCloser

	// The handler's alone, which writes from one goroutine at a time.
	started bool // the answer has begun
	status  int
	bytes   int64

	mu       sync.Mutex
	done     bool      // nothing more of the body is to come; guarded by mu
	over     bool      // the handler has returned, after which HTTP/2 permits no deadline; guarded by mu
	left     bool      // the request is answered, and the body's time limited; guarded by mu
	duplex   bool      // the body is read while the answer is written; guarded by mu
	ownRead  bool      // the handler has set a deadline for reading; guarded by mu
	ownWrite bool      // the handler has set a deadline for writing; guarded by mu
	armed    time.Time // when the deadline for writing was set last, zero when there is none; guarded by mu
}

// newTransfer returns the way of r and its answer. The request that is to be served
// instead of r has the body that it returns.
func newTransfer(w http.ResponseWriter, r *http.Request, record *access.Record) (*transfer, io.ReadCloser) {
	t := &transfer{
		ResponseWriter: w, control: http.NewResponseController(w), record: record, http1: r.ProtoMajor == 1,
		body: r.Body, done: r.Body == nil || r.Body == http.NoBody,
	}
	_ = t.control.SetWriteDeadline(time.Time{}) // of the request before; a transport without deadlines, as in tests
	if t.done {
		return t, r.Body
	}
	return t, (*timedBody)(t)
}

// timedBody is the body of a request, which must go on arriving.
type timedBody transfer

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	t := (*transfer)(b)
	rest := t.record.BodyRest(idleTime)
	ours := t.limitRead(time.Now().Add(rest))
	n, err := t.body.Read(p)
	switch {
	case err == nil, err == io.EOF:
	case ours && errors.Is(err, os.ErrDeadlineExceeded):
		err = sandbox.Wrap(sandbox.Timeout, err, "nothing more of the body has come for %s", rest)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = sandbox.Wrap(sandbox.Timeout, err, "the body did not arrive in time")
	default:
		err = sandbox.Wrap(sandbox.Invalid, err, "the body broke off before its end")
	}
	// It would fire between two reads, and at the end of the body end the request.
	t.limitRead(time.Time{})
	if err == io.EOF {
		t.mu.Lock()
		t.done = true
		t.mu.Unlock()
	}
	return n, err
}

// limitRead sets our deadline for reading, and reports whether there is no other.
func (t *transfer) limitRead(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ownRead || t.left || t.over {
		return false
	}
	_ = t.control.SetReadDeadline(at)
	return true
}

// Close implements io.Closer.
func (b *timedBody) Close() error { return (*transfer)(b).body.Close() }

// WriteHeader implements http.ResponseWriter. After the answer has begun, huma calls it with
// [statusClientClosed] when the client disconnects, which only the log, metrics and traces show.
func (t *transfer) WriteHeader(status int) {
	if t.started && status == statusClientClosed {
		t.status = status
		return
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		if t.status == 0 {
			t.status = status
		}
		t.started = true
		if status >= http.StatusOK && t.breaksOff() {
			t.Header().Set("Connection", "close")
		}
		t.leaveBody()
	}
	t.ResponseWriter.WriteHeader(status)
}

// breaksOff reports whether an answer begins before the end of a body that is read while it is written. net/http looks for the end of such a
// body after the request, and then panics at the next request of the connection, or takes the rest of the body for it.
func (t *transfer) breaksOff() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.http1 && t.duplex && !t.done
}

// leaveBody bounds how long net/http waits for a body that nobody reads before it
// answers a request of HTTP/1.
func (t *transfer) leaveBody() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.http1 || t.done || t.left || t.duplex || t.ownRead {
		return
	}
	t.left = true
	_ = t.control.SetReadDeadline(time.Now().Add(t.rest()))
}

// rest is how long the rest of a body is waited for when the request is answered.
func (t *transfer) rest() time.Duration {
	if t.record.SignedIn() || t.record.OfSandbox() {
		return restTime
	}
	return 0
}

// Write implements http.ResponseWriter.
func (t *transfer) Write(p []byte) (n int, err error) {
	if !t.started {
		t.WriteHeader(http.StatusOK)
	}
	for {
		part := p[n:min(len(p), n+writePart)]
		t.arm()
		m, err := t.ResponseWriter.Write(part)
		t.disarm()
		n, t.bytes = n+m, t.bytes+int64(m)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError lets http.ResponseController flush.
func (t *transfer) FlushError() error {
	if !t.started {
		t.WriteHeader(http.StatusOK)
	}
	t.arm()
	defer t.disarm()
	return t.control.Flush()
}

// arm begins the time in which the client must take the next bytes written.
func (t *transfer) arm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !t.ownWrite && now.Sub(t.armed) > rearmTime {
		t.armed = now
		_ = t.control.SetWriteDeadline(now.Add(idleTime))
	}
}

// disarm takes the deadline away where it would fire between two writes: one of
// HTTP/2 ends the stream.
func (t *transfer) disarm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.http1 && !t.ownWrite {
		t.armed = time.Time{}
		_ = t.control.SetWriteDeadline(time.Time{})
	}
}

// SetReadDeadline implements the interface of http.ResponseController; the zero time restores the
// deadlines of this package.
func (t *transfer) SetReadDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownRead = !at.IsZero()
	return t.control.SetReadDeadline(at)
}

// SetWriteDeadline implements the interface of http.ResponseController; the zero time restores the
// deadlines of this package.
func (t *transfer) SetWriteDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownWrite, t.armed = !at.IsZero(), time.Time{}
	return t.control.SetWriteDeadline(at)
}

// EnableFullDuplex implements the interface of http.ResponseController.
func (t *transfer) EnableFullDuplex() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.duplex = true
	return t.control.EnableFullDuplex()
}

// Unwrap lets http.ResponseController hand the connection over.
func (t *transfer) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// end bounds the time after the return of the handler: for reading the rest of the body, and
// writing the rest of the answer.
func (t *transfer) end() {
	t.mu.Lock()
	t.over, t.duplex, t.ownRead, t.ownWrite, t.armed = true, false, false, false, time.Time{}
	t.mu.Unlock()
	t.leaveBody()
	t.arm()
	t.discardRest()
}

// discardRest sends an error that is complete, and then reads what the client still
// sends of a body that is too long for net/http to read: net/http would close the
// connection, and a client that is writing would see the reset instead of the error.
func (t *transfer) discardRest() {
	t.mu.Lock()
	done := t.done || !t.left
	t.mu.Unlock()
	if done || t.rest() == 0 || t.status < http.StatusBadRequest || t.Header().Get("Content-Length") == "" {
		return
	}
	if err := errors.Join(t.control.Flush(), t.control.SetReadDeadline(time.Now().Add(t.rest()))); err != nil {
		return // the client is gone
	}
	_, _ = io.CopyN(io.Discard, t.body, restMax)
}
