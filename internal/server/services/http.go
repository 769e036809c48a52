package services

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/console"
	"github.com/modbox/modbox/internal/dialect/agentuity"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/dialect/e2b/envd"
	"github.com/modbox/modbox/internal/dialect/e2b/gateway"
	"github.com/modbox/modbox/internal/dialect/e2b/interpreter"
	"github.com/modbox/modbox/internal/dialect/modbox"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/mcphttp"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sshd"
)

// API returns what the HTTP API needs of the services, with all dialects. The caller may add
// checks and metrics before it passes the result to [api.New].
func (s *Services) API() api.Deps {
	workers, _ := s.ports.Driver.(*fleet.Driver)
	var elsewhere func(context.Context, sandbox.WorkspaceID) (map[sandbox.ID]sandbox.Usage, error)
	if s.ports.Store.Ranges() != sandbox.AllRanges {
		elsewhere = s.ports.Store.Usage.Elsewhere
	}
	return api.Deps{
		UsedElsewhere: elsewhere,
		Service:       s.Lifecycle, Auth: s.Auth, Accounts: s.Accounts, Registries: s.Registries, Catalogue: s.Catalogue, Images: s.ports.Installed,
		Builder: s.Builder, Audit: s.Audit, SSO: s.SSO, SSHKeys: s.SSHKeys, Links: s.Links, Events: s.Events, Webhooks: s.Webhooks, Workers: workers, Logger: s.ports.Logger, Driver: s.ports.Driver.Capabilities().Name,
		Dialects: []api.Dialect{
			modbox.NewControl(s.Lifecycle, s.Auth, s.Accounts, s.Registries, s.Catalogue, s.urls.Sandbox),
			agentuity.New(s.Lifecycle, s.Catalogue, s.urls),
			e2b.New(e2b.Deps{
				Service: s.Lifecycle, Images: s.Catalogue, Credentials: e2b.NewCredentials(s.ports.Keys), Templates: s.Templates,
				Domain: s.urls.Domain(), URL: s.urls.Server(),
			}),
		},
	}
}

// SSH returns what the SSH server needs of the services.
func (s *Services) SSH() sshd.Deps {
	return sshd.Deps{Logins: s.Auth, Keys: s.SSHKeys, Sandboxes: s.Lifecycle, Calls: s.Lifecycle.Guest(), Audit: s.Audit, Logger: s.ports.Logger}
}

// Edge has the settings of the handler in front of the API.
type Edge struct {
	Proxy proxy.Config
	// URLAccess is the minimum credential for the management routes on the URLs of sandboxes.
	URLAccess sandbox.URLAccess
	// Requests bounds and logs requests; Memory is set by [Services.Handler].
	Requests edge.Options
	// Origins are the origins of web pages that may call v1 from a browser.
	Origins []string
	// TrustedProxies are the addresses whose X-Forwarded headers count.
	TrustedProxies []netip.Prefix
	// MCP bounds MCP sessions; URL and Origins are set by [Services.Handler].
	MCP mcphttp.Config
	// Others has other servers answer requests about their sandboxes; nil for a server that works on all sandboxes.
	Others *forward.Forwarder
}

// Front is the handler of all requests. Make it with [Services.Handler].
type Front struct {
	http.Handler

	sessions *mcphttp.Handler
	proxy    *proxy.Proxy
	envd     *envd.Server
	gateway  *gateway.Gateway
}

// EndSessions ends the MCP sessions with their sandboxes, and refuses others. It must be called
// before the services close.
func (f *Front) EndSessions() { f.sessions.Close() }

// Close closes the connections to sandboxes.
func (f *Front) Close() {
	f.envd.Close()
	f.gateway.Close()
	f.proxy.Close()
}

// Handler returns the handler of all requests: requests to the URLs of sandboxes go through a
// proxy, requests of MCP sessions to tools that call v1, and all others to v1.
func (s *Services) Handler(v1 http.Handler, cfg Edge) (*Front, error) {
	access := modbox.Access{Server: cfg.URLAccess, Workspaces: s.ports.Store.Workspaces, Tokens: s.Auth}
	p, err := proxy.New(cfg.Proxy, proxy.Deps{
		Sandboxes: s.Lifecycle, Ports: s.Lifecycle.Networks(), Dialer: s.Lifecycle.Guest(), Routes: modbox.NewDataPlane(s.Lifecycle, access, s.Audit), Links: s.Links, Tokens: s.Auth, Logger: s.ports.Logger,
	})
	if err != nil {
		return nil, err
	}
	cfg.Requests.Memory = s.calls
	inner := cfg.Requests
	inner.Admission = nil // the request of the session counts
	cfg.MCP.URL, cfg.MCP.Origins = s.urls.Server(), cfg.Origins
	sessions := mcphttp.New(cfg.MCP, inner.Wrap(s.elsewhere(cfg, v1)), s.ports.Logger)
	mux := s.Auth.NewMux(s.Audit)
	// The requests that a session makes are recorded.
	mux.Handle(mcphttp.Path, auth.Rule{Needs: auth.SignedIn, Action: auth.NotRecorded, Fail: edge.Error}, sessions)
	mux.Handle("/", auth.Rule{Needs: auth.Public}, v1)
	if err := mux.Err(); err != nil {
		return nil, err
	}
	credentials := e2b.NewCredentials(s.ports.Keys)
	inside, err := envd.New(s.Lifecycle.Guest(), credentials, s.Audit)
	if err != nil {
		return nil, err
	}
	e2bs, err := gateway.New(gateway.Deps{Service: s.Lifecycle, Credentials: credentials, Envd: inside, Interpreter: interpreter.New(s.Lifecycle.Guest(), credentials, s.Audit), Ports: p, URLs: cfg.Proxy.URLs, Owner: s.ports.Store.Owner()})
	if err != nil {
		return nil, err
	}
	all := e2bs.Wrap(p.Wrap(edge.AllowOrigins(cfg.Origins, mux)))
	if s.console != "" {
		pages, err := console.New(s.console, console.Deps{
			API: v1, Server: s.urls.Server(), Desktops: s.urls.Pages(), Auth: s.Auth, Accounts: s.Accounts, SSO: s.SSO, Audit: s.Audit,
		})
		if err != nil {
			return nil, err
		}
		all = pages.Wrap(all)
	}
	front := auth.Forwarded(cfg.TrustedProxies, cfg.Requests.Wrap(s.elsewhere(cfg, all)))
	if cfg.Others != nil {
		front = forward.Arrive(front)
	}
	return &Front{
		Handler:  front,
		sessions: sessions, proxy: p, envd: inside, gateway: e2bs,
	}, nil
}

// elsewhere has other servers answer the requests to h about their sandboxes.
func (s *Services) elsewhere(cfg Edge, h http.Handler) http.Handler {
	if cfg.Others == nil {
		return h
	}
	return cfg.Others.Late(s.ports.Store.Owner(), h)
}
