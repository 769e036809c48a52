package auth

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/modbox/modbox/internal/sandbox"
)

// WorkspaceParam is the path parameter that selects the workspace of a request,
// as [WorkspaceHeader] does.
const WorkspaceParam = "workspace_id"

// Route is a pattern of a [Mux] and the permission it needs.
type Route struct {
	Pattern string
	Needs   sandbox.Permission
}

// Rule is what stands before the handler of a route.
type Rule struct {
	// Needs is the permission. A route without one makes the server refuse to start.
	Needs sandbox.Permission
	// Fail answers a request that is not let through. Must be set unless Needs is Public.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Workspace returns the workspace that the request names in a way of its own, ""
	// for none. May be nil.
	Workspace func(*http.Request) (string, error)
}

// Mux is a [http.ServeMux] whose every route is behind a [Rule]: the one place
// where requests are authorized. Routes are added before it serves.
type Mux struct {
	mux    *http.ServeMux
	auth   *Authenticator
	routes []Route
	err    error
}

// NewMux returns a Mux without routes.
func (a *Authenticator) NewMux() *Mux { return &Mux{mux: http.NewServeMux(), auth: a} }

// Handle adds a route. What is wrong with its rule is told by [Mux.Err].
func (m *Mux) Handle(pattern string, rule Rule, h http.Handler) {
	known := rule.Needs == Public || (rule.Needs == SignedIn || rule.Needs.Valid()) && rule.Fail != nil
	if !known {
		m.err = errors.Join(m.err, fmt.Errorf("route %q does not say which permission it needs", pattern))
	}
	m.routes = append(m.routes, Route{Pattern: pattern, Needs: rule.Needs})
	if rule.Needs != Public {
		h = m.auth.guard(rule, h)
	}
	m.mux.Handle(pattern, h)
}

// Handler returns what serves the request and its pattern, as [http.ServeMux.Handler] does.
func (m *Mux) Handler(r *http.Request) (http.Handler, string) { return m.mux.Handler(r) }

// ServeHTTP serves the request.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Routes returns all routes in the order they were added.
func (m *Mux) Routes() []Route { return m.routes }

// Err returns an error when a route has no proper rule; the Mux must not serve then.
func (m *Mux) Err() error { return m.err }

// guard lets requests through that satisfy the rule, their identity in the
// context. It sets WWW-Authenticate for Unauthenticated, as HTTP wants it.
func (a *Authenticator) guard(rule Rule, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := a.admit(rule, r)
		if err != nil {
			if sandbox.CodeOf(err) == sandbox.Unauthenticated {
				w.Header().Set("WWW-Authenticate", `Bearer realm="modbox"`)
			}
			rule.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(WithIdentity(r.Context(), id)))
	})
}

// admit says who makes the request and that it may.
func (a *Authenticator) admit(rule Rule, r *http.Request) (Identity, error) {
	ws := r.PathValue(WorkspaceParam)
	var unclear error // told only to those who are signed in
	if rule.Workspace != nil {
		var named string
		if named, unclear = rule.Workspace(r); named != "" {
			ws = named
		}
	}
	id, err := a.authenticate(r, ws)
	if err == nil {
		err = unclear
	}
	if err != nil {
		return Identity{}, err
	}
	return id, id.require(rule.Needs)
}
