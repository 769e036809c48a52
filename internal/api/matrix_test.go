package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// holders are the roles with each permission, as in the documentation; the test must not use the
// code's own table.
var holders = map[account.Permission][]account.Role{
	account.SandboxesRead:    {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.ImagesRead:       {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.WorkspacesRead:   {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.TokensRead:       {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.TokensWrite:      {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.AccountWrite:     {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.AuditRead:        {account.RoleOwner, account.RoleAdmin},
	auth.SignedIn:            {account.RoleOwner, account.RoleAdmin, account.RoleMember, account.RoleViewer},
	account.SandboxesWrite:   {account.RoleOwner, account.RoleAdmin, account.RoleMember},
	account.ImagesWrite:      {account.RoleOwner, account.RoleAdmin},
	account.MembersWrite:     {account.RoleOwner, account.RoleAdmin},
	account.WorkspacesWrite:  {account.RoleOwner, account.RoleAdmin},
	account.WebhooksRead:     {account.RoleOwner, account.RoleAdmin},
	account.WebhooksWrite:    {account.RoleOwner, account.RoleAdmin},
	account.WorkspacesDelete: {account.RoleOwner},
	account.Administer:       {}, // no role: a property of the user
}

// publicRoutes is every route that may be used without credentials.
var publicRoutes = []string{
	"/v1/", // dialects below have rules of their own, and unknown routes need a token
	"GET /health", "GET /e2b/health", "GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /openapi.yaml",
	"POST /auth/login", "POST /auth/refresh",
	"POST /v1/auth/login", "POST /v1/auth/refresh", "POST /v1/auth/accept", "POST /v1/auth/exchange", "GET /v1/auth/providers",
	"GET /auth/sso/{provider}", "GET /auth/sso/{provider}/callback",
	"GET /v1/streams/{stream}", "PUT /v1/streams/{stream}", "GET /streams/{stream}", "GET /v1/downloads/{key}",
	"POST /cli/validate/apt-dependencies", "GET /sandbox/snapshots/public", "GET /sandbox/snapshots/public/{snapshot}",
	"PUT /e2b/templates/{template}/files/{hash}", // the address has a secret
	"/volumecontent/", "/e2b/volumecontent/", // always the answer that there are no volumes
}

// matrix is a server with every dialect and two workspaces, of which one has a
// member of each role.
type matrix struct {
	*apitest.Server
	own, foreign sandbox.WorkspaceID
	members      map[account.Role]auth.Identity // of own
	calls        int
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{members: map[account.Role]auth.Identity{}}
	m.Server = apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) {
		deps.Metrics = http.NotFoundHandler()
	})
	make := func(name string) account.User {
		u, _, err := m.Accounts.CreateUser(t.Context(), auth.Identity{}, auth.NewUser{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	stranger := make("stranger")
	m.foreign = stranger.Home
	for _, role := range account.Roles {
		u := make("the-" + string(role))
		if m.own == "" {
			m.own = u.Home // of the owner, who comes first
		} else if err := m.Store.Members.AddMember(t.Context(), m.own, u.ID, role, u.CreatedAt); err != nil {
			t.Fatal(err)
		}
		m.members[role] = auth.Identity{User: u.ID, Workspace: m.own, Role: role}
	}
	return m
}

// wildcard is a path parameter of a pattern.
var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// call is a route with its parameters set to objects that do not exist, and without a valid body:
// an authorized caller gets another error, and nothing happens.
func (m *matrix) call(route auth.Route, ws sandbox.WorkspaceID) *http.Request {
	method, path, ok := strings.Cut(route.Pattern, " ")
	if !ok {
		method, path = "GET", route.Pattern+"nothing"
	}
	path = strings.NewReplacer("{"+auth.WorkspaceParam+"}", string(ws), "{org}", string(ws)).Replace(path)
	path = wildcard.ReplaceAllString(path, "no-such-thing")
	if path == "/v1/events/stream" { // which names no object, and would not end
		path += "?type=no-such-thing"
	}
	var body any
	if method != "GET" && method != "DELETE" {
		body = `"not what any route takes"`
	}
	r := m.Request(method, path, body)
	r.Header.Set(auth.WorkspaceHeader, string(ws))
	return r
}

// status is how the server answers a call with a token; "" is none.
func (m *matrix) status(r *http.Request, token string) int { return m.serve(r, token).Code }

// serve answers a call with a token. Each call is from another address: who fails
// often is slowed down.
func (m *matrix) serve(r *http.Request, token string) *httptest.ResponseRecorder {
	m.calls++
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1000", m.calls>>16, m.calls>>8&255, m.calls&255)
	r.Header.Del("Authorization")
	if r.Body == nil {
		r.Body = http.NoBody // as a server has it
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	edge.Wrap(slog.New(slog.DiscardHandler), m.API).ServeHTTP(rec, r)
	return rec
}

func (m *matrix) token(id auth.Identity, req auth.TokenRequest) string {
	m.T.Helper()
	secret, _, err := m.Auth.CreateToken(m.T.Context(), id, req)
	if err != nil {
		m.T.Fatal(err)
	}
	return secret
}

// TestEveryRouteHasARule walks all routes with every kind of credentials. It is
// made from the routes as they are registered: a new one is in it by itself.
func TestEveryRouteHasARule(t *testing.T) {
	m := newMatrix(t)
	ws, foreign := m.own, m.foreign
	expired := m.token(m.members[account.RoleOwner], auth.TokenRequest{Lifetime: time.Nanosecond})
	full, narrowed := map[account.Role]string{}, map[account.Permission]string{}
	for _, role := range account.Roles {
		full[role] = m.token(m.members[role], auth.TokenRequest{})
	}
	for _, p := range account.Permissions {
		narrowed[p] = m.token(m.members[account.RoleOwner], auth.TokenRequest{Scopes: []account.Permission{p}})
	}
	open := map[string]bool{}
	for _, route := range m.API.Routes() {
		t.Run(strings.NewReplacer(" ", "_", "/", ".").Replace(route.Pattern), func(t *testing.T) {
			want := func(what string, status int, wanted ...int) {
				t.Helper()
				for _, w := range wanted {
					if status == w {
						return
					}
				}
				t.Errorf("%s: %d, want one of %v", what, status, wanted)
			}
			if route.Needs == auth.Public {
				open[route.Pattern] = true
				s := m.status(m.call(route, ws), "")
				if local := route.Pattern == "GET /metrics"; (s == http.StatusForbidden) != local { // open to the server's own machine; see TestMetricsAccess
					t.Errorf("from another machine without credentials: %d", s)
				}
				return
			}
			want("no token", m.status(m.call(route, ws), ""), 401)
			want("expired token", m.status(m.call(route, ws), expired), 401)
			roles, ok := holders[route.Needs]
			if !ok {
				t.Fatalf("it needs %q, which the table of this test does not know", route.Needs)
			}
			for role, token := range full {
				let := contains(roles, role)
				if let && route.Needs == account.WorkspacesDelete {
					continue // it needs no more than the permission, see TestWorkspaceOfOwner
				}
				if s := m.status(m.call(route, ws), token); let == (s == 403) || s == 401 || s >= 500 && s != 501 {
					t.Errorf("%s: %d, let through should be %v", role, s, let)
				}
				want("foreign workspace as "+string(role), m.status(m.call(route, foreign), token), 404)
			}
			for scope, token := range narrowed {
				let := contains(roles, account.RoleOwner) && (route.Needs == auth.SignedIn || covers(scope, route.Needs))
				if let && route.Needs == account.WorkspacesDelete {
					continue
				}
				if s := m.status(m.call(route, ws), token); let == (s == 403) || s == 401 {
					t.Errorf("scope %s: %d, let through should be %v", scope, s, let)
				}
			}
		})
	}
	for _, p := range publicRoutes {
		if !open[p] {
			t.Errorf("%s is not among the routes, or not public", p)
		}
		delete(open, p)
	}
	for p := range open {
		t.Errorf("%s is public; is that meant?", p)
	}
}

// covers reports whether a token with the one scope has the permission.
func covers(scope, p account.Permission) bool {
	noun, verb, _ := strings.Cut(string(p), ":")
	return scope == p || verb == "read" && (strings.HasPrefix(string(scope), noun+":") || noun == "workspaces" && scope == account.MembersWrite)
}

func contains(roles []account.Role, role account.Role) bool {
	return strings.Contains(fmt.Sprint(roles), string(role))
}
