package edge

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// unpaidBody of a body is in memory without being counted, so that small requests work
	// however much others use.
	unpaidBody = 4 << 10
	// perByte is the memory of a byte of a body while it is read and decoded: the buffer, which grows
	// by doubling, and the decoded value.
	perByte = 3
	// perValue bounds the memory of a value of JSON in addition to its bytes.
	perValue = 256
	// payStep is in which steps memory is counted.
	payStep = 64 << 10
	// strangers is the owner of the bodies of all requests without a good token.
	strangers = "\x00strangers"
)

// Memory counts what this process holds for owners, and refuses an owner more than its
// fair share: agentapi.Memory.
type Memory interface {
	// ReserveFor counts n bytes, and reports whether the owner may have as many. With yield
	// it leaves more to others.
	ReserveFor(owner string, n int64, yield bool) bool
	// ReleaseFor gives n of the bytes back.
	ReleaseFor(owner string, n int64)
}

// reservation is the memory that a request's bodies count for.
type reservation struct {
	memory Memory // nil counts nothing

	mu    sync.Mutex
	owner string // guarded by mu
	want  int64  // guarded by mu; what there should be
	paid  int64  // guarded by mu; the bytes that the budget counts
}

// add counts n bytes more. Errors: QuotaExceeded.
func (r *reservation) add(ctx context.Context, n int64) error {
	if r.memory == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want += n
	if r.want <= perByte*unpaidBody || r.want <= r.paid {
		return nil
	}
	if r.owner == "" {
		record := access.FromContext(ctx)
		if r.owner = record.Workspace(); r.owner == "" || !record.SignedIn() && !record.OfSandbox() {
			r.owner = strangers
		}
	}
	more := (r.want - r.paid + payStep - 1) / payStep * payStep
	if !r.memory.ReserveFor(r.owner, more, r.owner == strangers) {
		return &sandbox.Error{
			Code: sandbox.QuotaExceeded, RetryAfter: time.Second,
			Message: "the server holds as much of request bodies as it may; send it again when others have ended, or a smaller one",
		}
	}
	r.paid += more
	return nil
}

// shrink gives back all but what the decoded body takes.
func (r *reservation) shrink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free(r.paid - r.paid/perByte)
}

// end gives everything back.
func (r *reservation) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free(r.paid)
}

// free gives n bytes back.
//
// Preconditions: r.mu is held.
func (r *reservation) free(n int64) {
	if n > 0 {
		r.memory.ReleaseFor(r.owner, n)
	}
	r.paid -= n
	r.want = min(r.want, r.paid)
}

// Whole returns a reader for a body that a handler reads completely. Its memory counts for the
// request's workspace until the request ends; [Decoded] frees a part earlier. Errors: QuotaExceeded
// when the workspace uses too much memory; the errors of r.
func Whole(ctx context.Context, r io.Reader) io.Reader { return whole(ctx, r, nil) }

// JSON is [Whole] for JSON, of whose values no more are read than docs/limits.md says.
// Errors: Invalid for more.
func JSON(ctx context.Context, r io.Reader) io.Reader { return whole(ctx, r, &values{}) }

func whole(ctx context.Context, r io.Reader, v *values) io.Reader {
	w := &wholeReader{Reader: r, ctx: ctx, values: v, reserved: &reservation{}}
	if q, ok := ctx.Value(contextKey{}).(*request); ok {
		w.reserved = &q.reserved
	}
	return w
}

// wholeReader is the reader of Whole and JSON.
type wholeReader struct {
	io.Reader
	ctx      context.Context
	reserved *reservation
	values   *values // nil when it is no JSON
	failed   error
}

// Read implements io.Reader.
func (w *wholeReader) Read(p []byte) (int, error) {
	if w.failed != nil {
		return 0, w.failed
	}
	n, err := w.Reader.Read(p)
	cost := perByte * int64(n)
	if w.values != nil {
		var found int64
		if found, w.failed = w.values.count(p[:n]); w.failed != nil {
			return 0, w.failed
		}
		cost += perValue * found
	}
	if w.failed = w.reserved.add(w.ctx, cost); w.failed != nil {
		return 0, w.failed
	}
	return n, err
}

// Decoded says that the body of the request is decoded and the buffers are not needed
// any more.
func Decoded(ctx context.Context) {
	if q, ok := ctx.Value(contextKey{}).(*request); ok {
		q.reserved.shrink()
	}
}

// Body returns the request's body, which is JSON, bounded in size and time; see [JSON].
// done lifts the time limit again, which would otherwise end the request's context later,
// and says that the body is decoded.
func Body(w http.ResponseWriter, r *http.Request, max int64) (body io.Reader, done func()) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(BodyTime)) // a transport without deadlines, as in tests
	return JSON(r.Context(), http.MaxBytesReader(w, r.Body, max)), func() {
		_ = c.SetReadDeadline(time.Time{})
		Decoded(r.Context())
	}
}

// Rest reads what follows in a body after its JSON. A server learns that a client has gone only once the request's
// body was read to its end, which a decoder does not do for bodies without a length. Errors: the errors of body.
func Rest(body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}
