package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/host"
	"github.com/modbox/modbox/internal/api/sshaccess"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sshkey"
	"github.com/modbox/modbox/internal/webhook"
)

// Config are the API's settings. Zero values mean the defaults that the comments name.
type Config struct {
	// Version of the server, as GET /v1/version answers it.
	Version string
	// SandboxURL returns the URL for a sandbox's host label, or for the label of a
	// published port. Must be set.
	SandboxURL func(label string) string
	// Commands without a timeout get ExecTimeout (60 s); none may ask for more than ExecTimeoutMax (1 h).
	ExecTimeout, ExecTimeoutMax time.Duration
	// ExecOutput is the default limit of each output in bytes (1 MiB), and ExecOutputMax its maximum
	// (16 MiB).
	ExecOutput, ExecOutputMax int
	// Ping is the longest silence of a stream (15 s).
	Ping time.Duration
	// MetricsAccess says which requests to /metrics are answered: MetricsLoopback ("" is
	// the same), MetricsToken or MetricsPublic.
	MetricsAccess string
	// SSH describes the SSH server to clients.
	SSH sshaccess.Server
}

// Deps are the dependencies of the API. All but UsedElsewhere, Workers, Metrics, Measured, Machine, Platform, Ready and Dialects must be set.
type Deps struct {
	Service *lifecycle.Service
	Auth    *auth.Authenticator
	// Accounts are users, workspaces and how people sign in.
	Accounts *auth.Accounts
	// Registries are how workspaces sign in to container registries.
	Registries *registry.Registries
	// Catalogue is the image catalogues of workspaces.
	Catalogue *catalogue.Catalogue
	// Images are on the server's disk.
	Images *image.Store
	// Builder builds images from Dockerfiles.
	Builder *build.Builder
	// SSHKeys are the keys by which users log in over SSH.
	SSHKeys *sshkey.Keys
	// Events are the events of all sandboxes.
	Events *eventstream.Hub
	// UsedElsewhere returns the recorded usage of the running sandboxes of a workspace that other servers work on; nil if there are none.
	UsedElsewhere func(ctx context.Context, ws sandbox.WorkspaceID) (map[sandbox.ID]sandbox.Usage, error)
	// Webhooks send events.
	Webhooks *webhook.Service
	// Workers has the workers; nil if sandboxes run on the server's machine.
	Workers *fleet.Driver
	// Links signs links to private ports.
	Links *preview.Links
	// Audit records requests.
	Audit *audit.Log
	// SSO signs users in through other services.
	SSO    *sso.SignIn
	Logger *slog.Logger
	// Driver is the name of the driver, for GET /v1/version.
	Driver string
	// Metrics serves GET /metrics; it must not show ids or names.
	Metrics http.Handler
	// Measured are the same metrics, Machine the machine, and Platform what runs new sandboxes, for GET /v1/host.
	Measured prometheus.Gatherer
	Machine  host.Machine
	Platform host.Platform
	// Ready are the checks behind GET /readyz, by name.
	Ready map[string]func(context.Context) error
	// Role is shown by GET /healthz and GET /readyz of a server with standbys; "" for others.
	Role string
	// ShardRanges are the digits of the ranges of shards of one of several active servers; "" for others. It is shown with Role.
	ShardRanges string
	// Dialects put their own routes beside /v1 on the same mux.
	Dialects []Dialect
}

// Dialect is another API over the same services.
type Dialect interface {
	// Register adds the routes of the dialect to mux.
	Register(mux *auth.Mux)
}

// Server answers /v1, by its handlers, and what belongs to the server as a whole.
type Server struct {
	cfg     Config
	deps    Deps
	openapi *huma.OpenAPI
	mux     *auth.Mux
	v1      *auth.Mux
}

// New returns a server with all its routes.
func New(cfg Config, deps Deps) (*Server, error) {
	if cfg.SandboxURL == nil || deps.Links == nil || deps.Service == nil || deps.Auth == nil || deps.Accounts == nil || deps.Registries == nil || deps.Catalogue == nil || deps.Images == nil || deps.Builder == nil || deps.Audit == nil || deps.Events == nil || deps.Webhooks == nil || deps.SSO == nil || deps.SSHKeys == nil || deps.Logger == nil {
		return nil, fmt.Errorf("api.New: SandboxURL, Service, Links, Auth, Accounts, Registries, Catalogue, Images, Builder, Audit, Events, Webhooks, SSO, SSHKeys and Logger must be set")
	}
	s := &Server{cfg: withDefaults(cfg), deps: deps, mux: deps.Auth.NewMux(deps.Audit), v1: deps.Auth.NewMux(deps.Audit)}
	s.openapi = document(ruled{s.v1}, s.cfg.Version, handlers(s.cfg, deps))
	s.v1.Name(operationIDs(s.openapi))
	// Anonymous clients do not learn which routes exist.
	unknown := deps.Auth.NewMux(deps.Audit)
	unknown.Handle("/", auth.Rule{Needs: auth.SignedIn, Fail: edge.Error}, named(s.v1))
	s.mux.Handle("/v1/", auth.Rule{Needs: auth.Public}, noteWakes(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := s.v1.Handler(r); pattern == "" {
			unknown.ServeHTTP(w, r)
			return
		}
		s.v1.ServeHTTP(w, r)
	})))
	s.registerPublic()
	for _, d := range deps.Dialects {
		d.Register(s.mux)
	}
	if err := errors.Join(s.v1.Err(), s.mux.Err()); err != nil {
		return nil, err
	}
	return s, nil
}

// Routes returns all routes of /v1, of the dialects and of the server as a
// whole, with what they need.
func (s *Server) Routes() []auth.Route { return append(slices.Clone(s.v1.Routes()), s.mux.Routes()...) }

func withDefaults(c Config) Config {
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.ExecTimeout == 0 {
		c.ExecTimeout = time.Minute
	}
	if c.ExecTimeoutMax == 0 {
		c.ExecTimeoutMax = time.Hour
	}
	if c.ExecOutput == 0 {
		c.ExecOutput = 1 << 20
	}
	if c.ExecOutputMax == 0 {
		c.ExecOutputMax = 16 << 20
	}
	if c.Ping == 0 {
		c.Ping = 15 * time.Second
	}
	return c
}

// ServeHTTP answers a request. It expects [edge.Wrap] around it.
//
// There are no CORS headers: a browser page of another origin cannot use the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	named(s.mux).ServeHTTP(w, withoutTrailingSlash(r))
}

// withoutTrailingSlash makes /path/ and /path the same, without a redirect that
// clients would follow with a GET.
func withoutTrailingSlash(r *http.Request) *http.Request {
	if len(r.URL.Path) < 2 || !strings.HasSuffix(r.URL.Path, "/") {
		return r
	}
	u := *r.URL
	// A name may end in an encoded slash, which is part of the name.
	if u.RawPath != "" {
		if !strings.HasSuffix(u.RawPath, "/") {
			return r
		}
		u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	r2 := *r
	r2.URL = &u
	return &r2
}

// named answers requests that no route of mux takes in the shape of all errors.
func named(mux *auth.Mux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		miss := &missWriter{header: http.Header{}}
		h.ServeHTTP(miss, r)
		if miss.status != http.StatusNotFound && miss.status != http.StatusMethodNotAllowed {
			h.ServeHTTP(w, r) // e.g. a redirect to the clean form of the path
			return
		}
		p := apierror.New(sandbox.Errorf(sandbox.NotFound, "there is no route %s %s", r.Method, r.URL.Path), edge.RequestID(r.Context()))
		if allow := miss.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			p.Status, p.Title = miss.status, http.StatusText(miss.status)
		}
		p.Write(w)
	})
}

// missWriter takes the mux's own answer to a request without a route.
type missWriter struct {
	header http.Header
	status int
}

func (m *missWriter) Header() http.Header         { return m.header }
func (m *missWriter) WriteHeader(status int)      { m.status = status }
func (m *missWriter) Write(p []byte) (int, error) { return len(p), nil }
