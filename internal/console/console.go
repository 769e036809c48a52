package console

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/sandbox"
)

// Deps are the parts of the server that the console uses. All must be set.
type Deps struct {
	// API answers /v1.
	API http.Handler
	// Server is the URL of the server, where sign-ins through other services begin.
	Server string
	// Desktops is where the pages may frame desktops of sandboxes, and previews of their ports: a source expression of a content security
	// policy, or "" for nowhere.
	Desktops string
	Auth     *auth.Authenticator
	Accounts *auth.Accounts
	SSO      *sso.SignIn
	Audit    *audit.Log
}

// Console answers the requests to its host. Safe for concurrent use.
type Console struct {
	deps   Deps
	scheme string // of its URL
	host   string // of its URL, without the port
	url    string
	files  *files
	mux    *auth.Mux
}

// New returns the console at a URL, such as "https://console.example.com".
func New(at string, deps Deps) (*Console, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("console: URL: %w", err)
	}
	built, err := builtFiles(deps.Desktops)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{deps: deps, scheme: u.Scheme, host: u.Hostname(), url: u.Scheme + "://" + u.Host, files: built, mux: deps.Auth.NewMux(deps.Audit)}
	public := func(pattern, action string, h http.Handler) {
		c.mux.Handle(pattern, auth.Rule{Needs: auth.Public, Action: action, Fail: edge.Error}, h)
	}
	public("POST /session", "login", c.own(edge.Handler(c.signIn)))
	public("POST /session/token", "login", c.own(edge.Handler(c.signInByToken)))
	public("POST /session/code", "accept-invitation", c.own(edge.Handler(c.accept)))
	public("GET /session/providers/{provider}", auth.NotRecorded, c.own(edge.Handler(c.beginExternal)))
	public("GET "+callbackPath, "login", edge.Handler(c.endExternal))
	public("DELETE /session", "logout", c.own(edge.Handler(c.signOut)))
	public("/v1/", auth.NotRecorded, c.own(http.HandlerFunc(c.api))) // the API records
	// The API has sign-ins whose answers hold tokens, which the pages must not get.
	public("/v1/auth/", auth.NotRecorded, c.own(edge.Handler(noTokens)))
	public("GET /v1/auth/providers", auth.NotRecorded, c.own(http.HandlerFunc(c.api)))
	public("/w/{"+workspaceParam+"}/v1/", auth.NotRecorded, c.own(http.HandlerFunc(c.inWorkspace)))
	public("/", auth.NotRecorded, c.files)
	if err := c.mux.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// workspaceParam is the part of a path that names a workspace, for requests of browsers that cannot
// have headers: event streams and WebSockets. It is not [auth.WorkspaceParam], which would select the
// workspace of the routes here.
const workspaceParam = "in"

// Wrap returns a handler that gives the requests to the console's host to the console, and all others
// to next.
func (c *Console) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(hostname(r.Host), c.host) {
			next.ServeHTTP(w, r)
			return
		}
		c.ServeHTTP(w, r)
	})
}

// hostname returns a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// ServeHTTP answers a request to the console's host.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	c.mux.ServeHTTP(w, r)
}

// api passes a request of the console's pages to the API, with the token of the cookie.
func (c *Console) api(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		edge.Error(w, r, sandbox.Errorf(sandbox.Forbidden, "answers of the API are no pages of the console"))
		return
	}
	r = r.Clone(r.Context())
	token := sessionToken(r)
	r.Header.Del("Cookie")
	r.Header.Del("Authorization")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	c.deps.API.ServeHTTP(w, r)
}

// inWorkspace is api for a request whose path names the workspace first.
func (c *Console) inWorkspace(w http.ResponseWriter, r *http.Request) {
	ws := r.PathValue(workspaceParam)
	prefix := "/w/" + url.PathEscape(ws)
	plain, ok := strings.CutPrefix(r.URL.Path, "/w/"+ws)
	raw, rawOK := strings.CutPrefix(r.URL.EscapedPath(), prefix)
	if !ok || !rawOK || strings.HasPrefix(plain, "/v1/auth/") {
		edge.Error(w, r, sandbox.Errorf(sandbox.NotFound, "there is no route %s %s", r.Method, r.URL.Path))
		return
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = plain, raw
	r.Header.Set(auth.WorkspaceHeader, ws)
	c.api(w, r)
}

func noTokens(http.ResponseWriter, *http.Request) error {
	return sandbox.Errorf(sandbox.NotFound, "the console signs in at /session; call this route at the URL of the server")
}
