// Package access collects facts about a request while it is served: its user and its object. The
// edge of the server makes a record for each request; the code behind it fills the record in, and
// at the end the record becomes a line of the access log.
package access

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Who identifies the user or token of a request.
type Who struct {
	User, Workspace string
	// Token is the id of the API token, Session the id of the session that the token is of.
	Token, Session string
}

// Record has the known facts about a request. Safe for concurrent use; a nil Record is empty and
// ignores changes.
type Record struct {
	admit func(user string) error

	mu       sync.Mutex
	who      Who           // guarded by mu
	route    string        // guarded by mu
	sandbox  string        // guarded by mu
	bodyIdle time.Duration // guarded by mu
	signedIn bool          // guarded by mu
}

// New returns a record. admit, which may be nil, is asked whether a user may have one
// more request under way.
func New(admit func(user string) error) *Record { return &Record{admit: admit} }

type contextKey struct{}

// WithRecord returns a context that carries r.
func WithRecord(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// FromContext returns the record of the request, nil outside of one.
func FromContext(ctx context.Context) *Record {
	r, _ := ctx.Value(contextKey{}).(*Record)
	return r
}

// By notes who makes the request, whether it is let through or not.
func (r *Record) By(who Who) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.who = who
}

// SignIn notes that the request is made with a good token. Errors: QuotaExceeded when
// its user has too many requests under way.
func (r *Record) SignIn() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	user, again := r.who.User, r.signedIn
	r.signedIn = true
	r.mu.Unlock()
	if again || r.admit == nil {
		return nil
	}
	return r.admit(user)
}

// SignedIn reports whether the request is made with a good token.
func (r *Record) SignedIn() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signedIn
}

// Workspace returns the workspace that the request is made in, "" while that is not known.
func (r *Record) Workspace() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.who.Workspace
}

// At notes the pattern of the request's route. The path itself is never noted: it may
// hold secrets, and the labels of sandboxes are such.
func (r *Record) At(route string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.route = route
}

// In notes the sandbox, by its id, whose URL is requested, and the sandbox's workspace.
func (r *Record) In(sandbox, workspace string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox, r.who.Workspace = sandbox, workspace
}

// LetBodyRest sets how long the body of the request may pause before it is given up, instead of the
// server's default.
func (r *Record) LetBodyRest(d time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodyIdle = d
}

// BodyRest returns the value of LetBodyRest, or else other.
func (r *Record) BodyRest(other time.Duration) time.Duration {
	if r == nil {
		return other
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bodyIdle == 0 {
		return other
	}
	return r.bodyIdle
}

// Routed serves the requests to a route, and notes its pattern.
func Routed(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		FromContext(r.Context()).At(route)
		next.ServeHTTP(w, r)
	})
}

// Attributes returns the attributes for the access log, without unknown ones.
func (r *Record) Attributes() []slog.Attr {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []slog.Attr
	for _, a := range []struct{ name, value string }{
		{"route", r.route}, {"user", r.who.User}, {"workspace", r.who.Workspace}, {"token", r.who.Token},
		{"session", r.who.Session}, {"sandbox", r.sandbox},
	} {
		if a.value != "" {
			list = append(list, slog.String(a.name, a.value))
		}
	}
	return list
}

// OfSandbox reports whether the request is to the URL of a sandbox.
func (r *Record) OfSandbox() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sandbox != ""
}

// Route returns the pattern of the request's route, "" when no route takes it.
func (r *Record) Route() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.route
}
