package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// WorkspaceParam is the path parameter that selects the workspace of a request,
// as [WorkspaceHeader] does.
const WorkspaceParam = "workspace"

// Route is a pattern of a [Mux], the permission that it needs, and the action under which its
// requests are audited; "" when they are not.
type Route struct {
	Pattern string
	Needs   account.Permission
	Action  string
}

// Values of [Rule.Action] other than the name of an action.
const (
	// NotRecorded is for routes that change nothing although their method suggests it.
	NotRecorded = "-"
	// Recorded is for routes whose action is given by [Mux.Name].
	Recorded = "+"
)

// Rule describes the checks before the handler of a route.
type Rule struct {
	// Needs is the required permission. A route without one keeps the server from starting.
	Needs account.Permission
	// Action is the name of the action in the audit log. Methods other than GET must have one; ""
	// means NotRecorded for GET, and Recorded for other methods.
	Action string
	// Fail answers a request that is refused. Must be set unless Needs is Public.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Administrators is whether administrators may use the route in every workspace; where they are
	// not members, they have no role.
	Administrators bool
	// Workspace returns the workspace that the request names in another way than by path or header;
	// "" for none. May be nil.
	Workspace func(*http.Request) (string, error)
}

// Mux is an [http.ServeMux] that applies a [Rule] to every route: the only place where requests are
// authorized and audited. All routes must be added before it serves.
type Mux struct {
	mux    *http.ServeMux
	auth   *Authenticator
	log    *audit.Log
	routes []Route
	// operations has the operations without a name so far, by their index in routes.
	operations map[int]*audit.Operation
	err        error
}

// NewMux returns a Mux without routes that records requests in log.
func (a *Authenticator) NewMux(log *audit.Log) *Mux {
	return &Mux{mux: http.NewServeMux(), auth: a, log: log, operations: map[int]*audit.Operation{}}
}

// Handle adds a route. [Mux.Err] returns the errors in rules.
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
		h = m.log.IntentHandler(op, h)
	}
	if rule.Needs != Public {
		h = m.auth.guard(rule, h)
	}
	if op != nil {
		h = m.log.Handler(op, h)
	}
	m.routes = append(m.routes, route)
	if !strings.HasSuffix(pattern, "/") { // not patterns that end with a slash: they lead to another mux or match all other paths
		h = access.Routed(pattern, h)
	}
	m.mux.Handle(pattern, h)
}

// Name sets the actions of routes that were added as Recorded, by pattern.
func (m *Mux) Name(actions map[string]string) {
	for i, op := range m.operations {
		if name := actions[m.routes[i].Pattern]; name != "" {
			op.Action, m.routes[i].Action = name, name
			delete(m.operations, i)
		}
	}
}

// Handler returns the handler of the request and its pattern, as [http.ServeMux.Handler] does.
func (m *Mux) Handler(r *http.Request) (http.Handler, string) { return m.mux.Handler(r) }

// ServeHTTP serves the request.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Routes returns all routes in the order they were added.
func (m *Mux) Routes() []Route { return m.routes }

// Err returns the errors in the rules of routes; a Mux with errors must not serve.
func (m *Mux) Err() error {
	err := m.err
	for _, op := range m.operations {
		err = errors.Join(err, fmt.Errorf("route %q has no action for the audit log", op.Route))
	}
	return err
}

// guard passes on requests that satisfy the rule, with their identity in the context. It sets
// WWW-Authenticate for Unauthenticated, as HTTP requires.
func (a *Authenticator) guard(rule Rule, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := a.authorize(rule, r)
		who := id.Actor()
		audit.FromContext(r.Context()).By(who)
		record := access.FromContext(r.Context())
		record.By(access.Actor{User: string(who.User), Workspace: string(who.Workspace), Token: who.Token, Session: who.Session})
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

// authorize returns the identity of a request, and an error unless it may use the route. With an
// error the identity has the fields known so far.
func (a *Authenticator) authorize(rule Rule, r *http.Request) (Identity, error) {
	ws := r.PathValue(WorkspaceParam)
	var unclear error // returned only to signed-in callers
	if rule.Workspace != nil {
		var named string
		if named, unclear = rule.Workspace(r); named != "" {
			ws = named
		}
	}
	id, err := a.authenticate(r, ws)
	if rule.Administrators && ws != "" && sandbox.CodeOf(err) == sandbox.NotFound {
		id, err = a.asAdministrator(r, ws, id, err)
	}
	if err == nil {
		err = unclear
	}
	if err != nil {
		return id, err
	}
	if id.Role == "" && rule.Administrators && id.May(account.Administer) {
		return id, nil
	}
	return id, id.require(rule.Needs)
}

// Actor returns the identity in the form of the audit log.
func (id Identity) Actor() audit.Actor {
	return audit.Actor{
		User: id.User, Workspace: id.Workspace, Token: id.TokenID, Session: id.Session, Role: id.Role, Administrator: id.Administrator,
	}
}

// asAdministrator authenticates the request again, as an administrator acting in a workspace
// without being a member of it. If the caller is not an administrator, it returns known and the
// original error, missing.
func (a *Authenticator) asAdministrator(r *http.Request, ws string, known Identity, missing error) (Identity, error) {
	id, err := a.authenticate(r, "")
	if err != nil || !id.May(account.Administer) {
		return known, missing
	}
	at, err := a.store.Memberships.WorkspaceNamed(r.Context(), sandbox.WorkspaceID(strings.ToLower(ws)))
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return known, missing
	case err != nil:
		return known, fmt.Errorf("look up workspace %s: %w", ws, err)
	}
	id.Workspace, id.Role = at, ""
	return id, nil
}
