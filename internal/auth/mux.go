package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// WorkspaceParam is the path parameter that selects the workspace of a request,
// as [WorkspaceHeader] does.
const WorkspaceParam = "workspace"

// Route is a pattern of a [Mux], the permission it needs, and as what its requests
// are recorded, "" when they are not.
type Route struct {
	Pattern string
	Needs   sandbox.Permission
	Action  string
}

// What [Rule.Action] may say beside the name of an action.
const (
	// NotRecorded is for routes that change nothing although their method says so.
	NotRecorded = "-"
	// Recorded is for routes that [Mux.Name] gives their action.
	Recorded = "+"
)

// Rule is what stands before the handler of a route.
type Rule struct {
	// Needs is the permission. A route without one makes the server refuse to start.
	Needs sandbox.Permission
	// Action is as what requests are recorded in the audit log. Those of methods other
	// than GET must have one; "" is Recorded for them and NotRecorded for GET.
	Action string
	// Fail answers a request that is not let through. Must be set unless Needs is Public.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Administrators get in to every workspace, those that they are no members of
	// without a role.
	Administrators bool
	// Workspace returns the workspace that the request names in a way of its own, ""
	// for none. May be nil.
	Workspace func(*http.Request) (string, error)
}

// Mux is a [http.ServeMux] whose every route is behind a [Rule]: the one place
// where requests are authorized and recorded. Routes are added before it serves.
type Mux struct {
	mux    *http.ServeMux
	auth   *Authenticator
	log    *audit.Log
	routes []Route
	// operations are those that have no name yet, by their place in routes.
	operations map[int]*audit.Operation
	err        error
}

// NewMux returns a Mux without routes, whose requests are recorded in log.
func (a *Authenticator) NewMux(log *audit.Log) *Mux {
	return &Mux{mux: http.NewServeMux(), auth: a, log: log, operations: map[int]*audit.Operation{}}
}

// Handle adds a route. What is wrong with its rule is told by [Mux.Err].
func (m *Mux) Handle(pattern string, rule Rule, h http.Handler) {
	known := rule.Needs == Public || (rule.Needs == SignedIn || rule.Needs.Valid()) && rule.Fail != nil
	if !known {
		m.err = errors.Join(m.err, fmt.Errorf("route %q does not say which permission it needs", pattern))
	}
	route := Route{Pattern: pattern, Needs: rule.Needs, Action: rule.Action}
	method, _, ok := strings.Cut(pattern, " ")
	if route.Action == "" && ok && method != http.MethodGet {
		route.Action = Recorded
	}
	if route.Action == NotRecorded {
		route.Action = ""
	}
	var op *audit.Operation
	if route.Action != "" {
		op = &audit.Operation{Action: route.Action, Route: pattern, Needs: rule.Needs, Fail: rule.Fail}
		if route.Action == Recorded {
			m.operations[len(m.routes)] = op
		}
		h = m.log.Admitted(op, h)
	}
	if rule.Needs != Public {
		h = m.auth.guard(rule, h)
	}
	if op != nil {
		h = m.log.Handler(op, h)
	}
	m.routes = append(m.routes, route)
	if !strings.HasSuffix(pattern, "/") { // what is not one route but leads to a mux, or is for all others
		h = access.Routed(pattern, h)
	}
	m.mux.Handle(pattern, h)
}

// Name gives routes that are recorded without an action theirs, by pattern.
func (m *Mux) Name(actions map[string]string) {
	for i, op := range m.operations {
		if name := actions[m.routes[i].Pattern]; name != "" {
			op.Action, m.routes[i].Action = name, name
			delete(m.operations, i)
		}
	}
}

// Handler returns what serves the request and its pattern, as [http.ServeMux.Handler] does.
func (m *Mux) Handler(r *http.Request) (http.Handler, string) { return m.mux.Handler(r) }

// ServeHTTP serves the request.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Routes returns all routes in the order they were added.
func (m *Mux) Routes() []Route { return m.routes }

// Err returns an error when a route has no proper rule; the Mux must not serve then.
func (m *Mux) Err() error {
	err := m.err
	for _, op := range m.operations {
		err = errors.Join(err, fmt.Errorf("route %q does not say as what it is recorded", op.Route))
	}
	return err
}

// guard lets requests through that satisfy the rule, their identity in the
// context. It sets WWW-Authenticate for Unauthenticated, as HTTP wants it.
func (a *Authenticator) guard(rule Rule, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := a.admit(rule, r)
		who := id.who()
		audit.FromContext(r.Context()).By(who)
		record := access.FromContext(r.Context())
		record.By(access.Who{User: string(who.User), Workspace: string(who.Workspace), Token: who.Token, Session: who.Session})
		if err == nil {
			err = record.SignIn()
		}
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

// admit says who makes the request and that it may. With an error the identity
// says who it is as far as that is known.
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
	if rule.Administrators && ws != "" && sandbox.CodeOf(err) == sandbox.NotFound {
		id, err = a.administrator(r, ws, id, err)
	}
	if err == nil {
		err = unclear
	}
	if err != nil {
		return id, err
	}
	if id.Role == "" && rule.Administrators && id.May(sandbox.Administer) {
		return id, nil
	}
	return id, id.require(rule.Needs)
}

// who is the identity as the audit log has it.
func (id Identity) who() audit.Who {
	return audit.Who{
		User: id.User, Workspace: id.Workspace, Token: id.TokenID, Session: id.Session, Role: id.Role, Administrator: id.Administrator,
	}
}

// administrator is who makes the request when that is an administrator, acting in
// a workspace it is no member of; else it is known as far as it was, and the error is
// missing.
func (a *Authenticator) administrator(r *http.Request, ws string, known Identity, missing error) (Identity, error) {
	id, err := a.authenticate(r, "")
	if err != nil || !id.May(sandbox.Administer) {
		return known, missing
	}
	at, err := a.store.WorkspaceNamed(r.Context(), sandbox.WorkspaceID(strings.ToLower(ws)))
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return known, missing
	case err != nil:
		return known, fmt.Errorf("look up workspace %s: %w", ws, err)
	}
	id.Workspace, id.Role = at, ""
	return id, nil
}
