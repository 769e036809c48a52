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

// Actor identifies the user or token of a request.
type Actor struct {
	User, Workspace string
	// Token is the id of the API token, Session the id of the session of the token.
	Token, Session string
}

// Record has the known facts about a request. Safe for concurrent use; a nil Record is empty and
// ignores changes.
type Record struct {
	countUser func(user string) error

	mu       sync.Mutex
	actor    Actor         // guarded by mu
	route    string        // guarded by mu
	sandbox  string        // guarded by mu
	bodyIdle time.Duration // guarded by mu
	signedIn bool          // guarded by mu
	part     int           // guarded by mu; see [Record.SetElsewhere]
	found    bool          // guarded by mu; part is set
	passedOn bool          // guarded by mu
}

// New returns a record. It asks countUser, which may be nil, whether a user may have another
// request in progress.
func New(countUser func(user string) error) *Record { return &Record{countUser: countUser} }

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

// By sets the actor of the request, permitted or not.
func (r *Record) By(actor Actor) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.actor = actor
}

// SignIn notes that the request has a valid token. Errors: QuotaExceeded when its user has too many
// requests in progress.
func (r *Record) SignIn() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	user, again := r.actor.User, r.signedIn
	r.signedIn = true
	r.mu.Unlock()
	if again || r.countUser == nil {
		return nil
	}
	return r.countUser(user)
}

// SignedIn reports whether the request has a valid token.
func (r *Record) SignedIn() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signedIn
}

// Workspace returns the workspace of the request, "" if it is not known yet.
func (r *Record) Workspace() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.actor.Workspace
}

// At sets the pattern of the request's route. The path itself is never recorded: it may contain
// secrets, such as the labels of sandboxes.
func (r *Record) At(route string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.route = route
}

// In sets the sandbox whose URL is requested, by its id, and the sandbox's workspace.
func (r *Record) In(sandbox, workspace string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox, r.actor.Workspace = sandbox, workspace
}

// LetBodyRest sets the longest pause of the request's body, instead of the server's default.
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

// SetElsewhere notes that another server works on the sandbox of the request: the server of a range of shards, or some server if part is negative.
func (r *Record) SetElsewhere(part int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part, r.found = part, true
}

// Elsewhere returns the range that SetElsewhere has noted, if it has.
func (r *Record) Elsewhere() (part int, ok bool) {
	if r == nil {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.part, r.found
}

// PassOn notes that another server answers the request, and records it.
func (r *Record) PassOn() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passedOn = true
}

// PassedOn reports whether another server answers the request.
func (r *Record) PassedOn() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passedOn
}

// Routed serves the requests of a route, and records its pattern.
func Routed(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		FromContext(r.Context()).At(route)
		next.ServeHTTP(w, r)
	})
}

// Attributes returns the attributes for the access log, without the unknown attributes.
func (r *Record) Attributes() []slog.Attr {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []slog.Attr
	for _, a := range []struct{ name, value string }{
		{"route", r.route}, {"user", r.actor.User}, {"workspace", r.actor.Workspace}, {"token", r.actor.Token},
		{"session", r.actor.Session}, {"sandbox", r.sandbox},
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

// Route returns the pattern of the request's route, "" when no route matches.
func (r *Record) Route() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.route
}
