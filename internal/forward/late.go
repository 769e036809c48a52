package forward

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/share"
)

const (
	// maxLateKept bounds the memory for the body of a request until it is clear which server answers it, and maxAllLateKept for all such bodies.
	maxLateKept    = 48 << 20
	maxAllLateKept = 96 << 20
)

// hop is the number of servers that have had a request.
type hop int

const (
	// none is for a request from a client: the server may forward it by its path, and by what it finds.
	none hop = iota
	// first is for a request that a server has forwarded without its look-ups: the receiver may forward it by what it finds.
	first
	// final is for a request that a server has forwarded because it has found its sandbox: the receiver answers it.
	final
)

type (
	hopKey  struct{}
	peerKey struct{}
)

// refused wraps the errors of requests that another server has refused without executing them.
type refused struct{ error }

// Unwrap returns the reason.
func (e refused) Unwrap() error { return e.error }

// Arrive returns a handler that notes the address from which a request came, before next replaces it by the address that a proxy names.
func Arrive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, r.RemoteAddr)))
	})
}

// peer returns the address from which a request came.
func peer(r *http.Request) string {
	if at, ok := r.Context().Value(peerKey{}).(string); ok {
		return at
	}
	return r.RemoteAddr
}

// partOf returns the range of the sandbox that the path of a request names by its id, or [anywhere]. The id may also be the name of a sandbox of another
// range; the owner of the range then forwards the request.
func partOf(r *http.Request) int {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if strings.HasPrefix(path, "s/") {
		return anywhere // the path belongs to a program in a sandbox
	}
	for range 4 { // where all routes have the sandbox
		var part string
		part, path, _ = strings.Cut(path, "/")
		switch part {
		case "sandbox", "sandboxes", "status", "fs", "list", "download":
			next, _, _ := strings.Cut(path, "/")
			if id, ok := sandbox.ParseID(next); ok {
				return id.Shard().Range()
			}
		}
	}
	return anywhere
}

// Late returns a handler for a server that works on the sandboxes of owner. It has next answer requests, and the server of a sandbox answer the requests which next refuses
// because another server works on the sandbox: what next has answered is dropped then, and the body is sent from its beginning.
// A request is forwarded at once if its path has the id of such a sandbox. It must be within the wrapper of [edge.Options].
func (f *Forwarder) Late(owner *sandbox.Ownership, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, _ := r.Context().Value(hopKey{}).(hop)
		if part := partOf(r); h == none && part != anywhere && !owner.Ranges().HasRange(part) {
			f.pass(w, r, &call{part: part, hop: first})
			return
		}
		a := &answer{ResponseWriter: w, forwarder: f, request: r, header: maps.Clone(w.Header()), record: access.FromContext(r.Context()), final: h == final}
		q := r
		if r.Body != nil && r.Body != http.NoBody && h != final {
			account := f.late.Open(f.cfg.Caller(r))
			a.body = &keptBody{body: r.Body, account: account}
			defer a.body.forget()
			q = r.WithContext(r.Context())
			q.Body = a.body
		}
		next.ServeHTTP(a, q)
		if !a.passed {
			return
		}
		clear(w.Header())
		maps.Copy(w.Header(), a.header)
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{}) // of the handler; a transport without deadlines, as in tests
		_ = control.SetWriteDeadline(time.Time{})
		edge.Decoded(r.Context())
		c := &call{part: a.part, hop: final}
		if a.part == sandbox.SomeRange {
			self, _ := f.server(owner.Ranges().First(), nil)
			c.part, c.ask, c.not = anywhere, true, []*server{self}
		}
		if a.body != nil {
			r = r.WithContext(r.Context())
			r.Body, c.body = a.body.again()
		}
		f.metrics.late.Inc()
		f.pass(w, r, c)
	})
}

// pass has the owner of a sandbox answer a request.
func (f *Forwarder) pass(w http.ResponseWriter, r *http.Request, c *call) {
	c.forwarder, c.caller, c.peer, c.answer = f, f.cfg.Caller(r), peer(r), w.Header()
	switch {
	case c.body != nil:
		c.idempotent = r.Method == http.MethodPost && r.URL.Path == creates && r.Header.Get(keyHeader) != ""
	case r.Body == nil || r.Body == http.NoBody:
		c.idempotent = len(r.Header["Upgrade"]) == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	}
	c.serve(w, r)
}

// answer is the answer to a request, which is dropped if another server answers it.
type answer struct {
	http.ResponseWriter
	forwarder *Forwarder
	request   *http.Request
	record    *access.Record
	header    http.Header // before the handler
	body      *keptBody   // nil for none
	final     bool

	begun  bool // the answer is the client's
	passed bool // another server answers
	part   int
}

// begin decides, when the answer begins, whose it is.
func (a *answer) begin() {
	if a.begun || a.passed {
		return
	}
	part, elsewhere := a.record.Elsewhere()
	a.Header().Del(elsewhereHeader)
	switch {
	case elsewhere && a.final:
		a.record.PassOn()
		a.Header().Set(elsewhereHeader, "1")
	case elsewhere && part == sandbox.SomeRange && !a.forwarder.asks.permit(a.forwarder.cfg.Caller(a.request)):
	case elsewhere && (a.body == nil || a.body.whole()):
		a.passed, a.part = true, part
		a.record.PassOn()
		return
	}
	a.begun = true
	if a.body != nil {
		a.body.forget()
	}
}

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		a.begin()
	}
	if !a.passed {
		a.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	if a.begin(); a.passed {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// FlushError implements the interface of [http.ResponseController].
func (a *answer) FlushError() error {
	if a.begin(); a.passed {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements the interface of [http.ResponseController].
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.begin(); a.passed {
		return nil, nil, http.ErrHijacked
	}
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// Unwrap lets [http.ResponseController] set deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// keptBody is the body of a request, which keeps all that was read until the answer begins, within limits.
type keptBody struct {
	body io.ReadCloser

	mu      sync.Mutex
	account *share.Account // guarded by mu
	kept    bytes.Buffer   // guarded by mu
	lost    bool           // guarded by mu; it does not have all that was read
	ended   bool           // guarded by mu; all of it was read
}

// Read implements [io.Reader].
func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = b.ended || err == io.EOF
	switch {
	case b.lost || n == 0:
	case b.kept.Len()+n > maxLateKept || !b.account.TryTake(int64(n)):
		b.drop()
	default:
		b.kept.Write(p[:n])
	}
	return n, err
}

// Close implements [io.Closer]. The body stays open, as another server may need the rest.
func (b *keptBody) Close() error { return nil }

// whole reports whether it has all that was read.
func (b *keptBody) whole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.lost
}

// forget keeps nothing from now on.
func (b *keptBody) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
}

// drop keeps nothing from now on.
//
// Preconditions: b.mu is held.
func (b *keptBody) drop() {
	b.lost, b.kept = true, bytes.Buffer{}
	b.account.Close()
}

// again returns the body from its beginning: all of it if it was read to its end, else a reader for what was read and the rest.
func (b *keptBody) again() (rest io.ReadCloser, all []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return http.NoBody, b.kept.Bytes()
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b.kept.Bytes()), b.body)), nil
}
