package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/cache"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/sandbox"
)

// Sandboxes finds sandboxes; lifecycle.Service implements it.
type Sandboxes interface {
	// ByLabel returns the living sandbox with that host label, from memory.
	ByLabel(label string) (sandbox.Sandbox, bool)
	// EndedByLabel returns the sandbox with that host label when ByLabel does not know
	// it, or NotFound.
	EndedByLabel(ctx context.Context, label string) (sandbox.Sandbox, error)
}

// Ports finds published ports; network.Service implements it.
type Ports interface {
	// ByPortLabel returns the sandbox that publishes a port with that label, and the
	// port, from memory, or NotFound; ctx ends when the label stops leading there or
	// the port's access changes.
	ByPortLabel(label string) (sb sandbox.Sandbox, port sandbox.PublishedPort, ctx context.Context, err error)
}

// Dialer connects to the ports of sandboxes; guest.Calls implements it.
type Dialer interface {
	// Dial connects to a port of a running sandbox, with the errors of driver.Dial.
	Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error)
}

// Routes are paths of every sandbox's URL that the server answers itself.
type Routes interface {
	// ServeSandbox answers a request to a running sandbox's own URL, whose path
	// has no prefix any more, and reports whether it did: false passes it on.
	ServeSandbox(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox) bool
}

// Tokens checks API tokens: auth.Authenticator.
type Tokens interface {
	// Permits returns the owner of a token that came with a request, when the owner may
	// do p in the workspace. Errors: Unauthenticated, Forbidden, QuotaExceeded after too many wrong tokens.
	Permits(r *http.Request, token string, ws sandbox.WorkspaceID, p account.Permission) (auth.Identity, error)
	// StillPermits returns nil when the user may still do p in the workspace by the API
	// token with that id, or by itself for "". Errors: Unauthenticated, Forbidden.
	StillPermits(ctx context.Context, user sandbox.UserID, token string, ws sandbox.WorkspaceID, p account.Permission) error
	// Changed returns a channel that is closed at the next change of what tokens may do.
	Changed() <-chan struct{}
}

// Deps are the dependencies of the proxy. All except Routes must be set.
type Deps struct {
	Sandboxes Sandboxes
	Ports     Ports
	Dialer    Dialer
	// Routes are the management routes, which the server answers on a sandbox's own URL.
	Routes Routes
	// Links checks signed links to private ports.
	Links *preview.Links
	// Tokens checks the API tokens of visitors of private ports.
	Tokens Tokens
	Logger *slog.Logger
}

// Config are the proxy's settings. Zero values mean the defaults that the comments name.
type Config struct {
	// URLs must be set.
	URLs URLs
	// ResponseTimeout is how long a server may take until the first byte of its answer; 10 minutes.
	ResponseTimeout time.Duration
	// MaxConnections is how many requests to one sandbox may be under way at once; 256.
	MaxConnections int
	// MaxRequests is how many requests to all sandboxes may be under way at once, of
	// which one workspace may have a quarter; 5000.
	MaxRequests int
	// RefusePaths is whether URLs in path form are answered with an error.
	RefusePaths bool
}

// route names all requests to the URLs of sandboxes in the access log.
const route = "sandbox URL"

const (
	dialTimeout       = 10 * time.Second
	idleTimeout       = 30 * time.Second
	maxIdlePerPort    = 32
	maxResponseHeader = 256 << 10
	copyBuffer        = 32 << 10
	flushInterval     = 5 * time.Millisecond
	// poolTime is how long an unused pool stays; its connections close earlier.
	poolTime = 10 * time.Minute
	maxPools = 10_000
)

// Proxy carries requests to sandboxes. Safe for concurrent use.
type Proxy struct {
	cfg       Config
	sandboxes Sandboxes
	ports     Ports
	dialer    Dialer
	routes    Routes
	links     *preview.Links
	tokens    Tokens
	guesses   *auth.Guesses
	logger    *slog.Logger
	pools     *cache.Cache[sandbox.ID, *pool]
	reverse   *httputil.ReverseProxy
	share     *share
}

// New returns a proxy.
func New(cfg Config, deps Deps) (*Proxy, error) {
	if cfg.URLs.public.Host == "" || deps.Sandboxes == nil || deps.Dialer == nil || deps.Links == nil || deps.Tokens == nil || deps.Logger == nil {
		return nil, errors.New("proxy.New: URLs, Sandboxes, Links, Tokens and Logger must be set")
	}
	if cfg.ResponseTimeout == 0 {
		cfg.ResponseTimeout = 10 * time.Minute
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 256
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = 5000
	}
	pools, err := cache.New[sandbox.ID](cache.Options[*pool]{
		Size:        maxPools,
		AfterAccess: poolTime,
		OnRemove:    func(l *pool) { l.transport.CloseIdleConnections() },
	})
	if err != nil {
		return nil, fmt.Errorf("make connection pools: %w", err)
	}
	guesses, err := auth.NewGuesses()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg: cfg, sandboxes: deps.Sandboxes, ports: deps.Ports, dialer: deps.Dialer, routes: deps.Routes, links: deps.Links, tokens: deps.Tokens, guesses: guesses,
		logger: deps.Logger, pools: pools, share: newShare(cfg.MaxRequests),
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:   p.rewrite,
		Transport: roundTripper{},
		// Answers of unknown length are flushed at once in any case. For the others
		// "at once" would cost a goroutine and a second packet for each small answer.
		FlushInterval:  flushInterval,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of servers in sandboxes do not belong in the server's log
		BufferPool:     &buffers{sync.Pool{New: func() any { return new([copyBuffer]byte) }}},
		ModifyResponse: p.modifyResponse,
		ErrorHandler:   p.answerError,
	}
	return p, nil
}

// Close closes idle connections. Requests under way go on.
func (p *Proxy) Close() {
	p.pools.Clear()
	p.pools.Close()
	p.guesses.Close()
}

// Forget closes the idle connections to a sandbox. Calling it at a sandbox's end
// is a courtesy: they would end with it or after some seconds.
func (p *Proxy) Forget(id sandbox.ID) { p.pools.Remove(id) }

// request is the context of a proxied request in httputil.ReverseProxy.
type request struct {
	target Target
	sb     sandbox.Sandbox
	// port is the port it leads to; without a label when that is not published.
	port sandbox.PublishedPort
	// published ends when the port's label stops leading to it or its access changes;
	// nil when it is not published.
	published context.Context
	// until is the time at which the visitor's link or token expires; zero for never.
	until time.Time
	// maker is the owner of the visitor's token, or the maker of its link; changed is
	// closed when the maker's rights may have changed. Both are nil for a public port.
	maker   *preview.Maker
	changed <-chan struct{}
	pool    *pool
	answer  http.Header     // of the answer, as far as it is ours
	host    string          // of the URL
	ended   context.Context // ends with the request
}

type contextKey struct{}

func requestOf(ctx context.Context) *request {
	q, _ := ctx.Value(contextKey{}).(*request)
	return q
}

// Wrap carries requests for sandboxes and leaves all others to next.
func (p *Proxy) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, ours, ok := p.cfg.URLs.Parse(r.Host, r.URL.EscapedPath())
		if !ours {
			next.ServeHTTP(w, r)
			return
		}
		access.FromContext(r.Context()).At(route)
		a := newAnswer(w, target.Prefix)
		switch {
		case target.Prefix != "" && p.cfg.RefusePaths:
			p.writeError(a, r, sandbox.Errorf(sandbox.NotFound, "this server answers no URLs of sandboxes in path form"))
		case !ok:
			p.writeError(a, r, sandbox.Errorf(sandbox.NotFound, "this is not the URL of a sandbox"))
		default:
			p.serve(a, r, target)
		}
		a.end()
	})
}

func (p *Proxy) serve(w *answer, r *http.Request, target Target) {
	if p.redirect(w, r, target) {
		return
	}
	q, err := p.find(r, target)
	if err == nil {
		err = q.usable()
	}
	if err != nil {
		if q != nil && sandbox.CodeOf(err) == sandbox.Ended {
			p.Forget(q.sb.ID)
		}
		p.writeError(w, r, err)
		return
	}
	record := access.FromContext(r.Context())
	record.In(string(q.sb.ID), string(q.sb.Workspace))
	record.LetBodyRest(p.cfg.ResponseTimeout)
	leave, err := p.share.enter(q.sb.Workspace)
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	defer leave()
	if target.Prefix != "" {
		r = withoutPrefix(r, target.Prefix)
	}
	if target.Port == 0 && !target.Published && p.routes != nil && p.routes.ServeSandbox(w, r, q.sb) {
		return
	}
	err = checkUpgrade(r)
	if err == nil {
		var done bool
		if done, err = p.authorize(w, r, q); done {
			return
		}
	}
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	p.carry(w, r, q)
}

// redirect answers a request in path form that a redirect serves better, and reports whether it did.
func (p *Proxy) redirect(w *answer, r *http.Request, target Target) bool {
	if target.Prefix == "" || r.Method != http.MethodGet && r.Method != http.MethodHead || upgrading(r) {
		return false
	}
	// A browser opens a page; it can resolve the host, which other programs often cannot.
	if location, ok := p.cfg.URLs.Local(r, target); ok && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, location, http.StatusTemporaryRedirect)
		return true
	}
	if r.URL.EscapedPath() != target.Prefix {
		return false
	}
	// Relative links of the page would otherwise lead out of the sandbox.
	u := *r.URL
	u.Path += "/"
	http.Redirect(w, r, u.RequestURI(), http.StatusTemporaryRedirect)
	return true
}

// find returns what a request is for: the sandbox, and the port it leads to.
func (p *Proxy) find(r *http.Request, t Target) (*request, error) {
	if t.Published {
		sb, port, published, err := p.ports.ByPortLabel(t.Label)
		if err != nil {
			if !errors.As(err, new(sandbox.Elsewhere)) {
				p.guesses.Wrong(r.RemoteAddr)
			}
			return nil, sandbox.Wrap(sandbox.NotFound, err, "nothing is published at this URL, or not any more")
		}
		t.Port = port.Port
		return &request{target: t, sb: sb, port: port, published: published}, nil
	}
	sb, ok := p.sandboxes.ByLabel(t.Label)
	if !ok {
		// Those are looked up on the disk, which is not for everybody to keep busy.
		if p.guesses.TooMany(r.RemoteAddr) {
			return nil, tooMany{sandbox.Errorf(sandbox.QuotaExceeded, "too many URLs of no sandbox from this address; wait a minute")}
		}
		var err error
		if sb, err = p.sandboxes.EndedByLabel(r.Context(), t.Label); err != nil {
			if sandbox.CodeOf(err) == sandbox.NotFound {
				p.guesses.Wrong(r.RemoteAddr)
				err = sandbox.Errorf(sandbox.NotFound, "there is no sandbox at this URL")
			}
			return nil, err
		}
	}
	q := &request{target: t, sb: sb}
	if q.target.Port == 0 {
		q.target.Port = sb.Port()
	}
	q.port.Port = q.target.Port
	if port, ok := sb.PublishedPort(q.target.Port); ok {
		if _, _, published, err := p.ports.ByPortLabel(port.Label); err == nil {
			q.port, q.published = port, published
		}
	}
	return q, nil
}

// carry has the sandbox answer a request, as long as its visitor may use the port.
func (p *Proxy) carry(w http.ResponseWriter, r *http.Request, q *request) {
	pl := p.pool(q.sb.ID)
	select {
	case pl.slots <- struct{}{}:
		defer func() { <-pl.slots }()
	default:
		p.writeError(w, r, sandbox.Errorf(sandbox.Unavailable, "%d requests to this sandbox are under way, which is the maximum", p.cfg.MaxConnections))
		return
	}
	q.pool, q.answer = pl, w.Header()
	ctx := context.WithValue(r.Context(), contextKey{}, q)
	if q.published != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(q.published, cancel)()
	}
	if !q.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, q.until)
		defer cancel()
	}
	if q.maker != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go p.watch(ctx, cancel, q)
	}
	if r.Body != nil && r.Body != http.NoBody {
		// The sandbox may answer while the body comes; a transport without, as in tests.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	q.ended = ctx
	p.reverse.ServeHTTP(w, r.WithContext(ctx))
}

// usable returns an error if the sandbox cannot be reached. At the URL of a published
// port, the error reveals nothing else about the sandbox.
func (q *request) usable() error {
	if err := usable(&q.sb); err == nil || !q.target.Published {
		return err
	} else if sandbox.CodeOf(err) == sandbox.NotRunning {
		return sandbox.Errorf(sandbox.NotRunning, "the sandbox at this URL is still starting; try again in a moment")
	}
	return sandbox.Errorf(sandbox.Ended, "the sandbox at this URL has ended")
}

// place names where a request leads, for its visitor.
func (q *request) place() string {
	if q.target.Published {
		return "at this URL"
	}
	return fmt.Sprintf("on port %d in sandbox %s", q.target.Port, q.sb.Name)
}

// usable returns why a sandbox cannot be talked to, nil when it can.
func usable(sb *sandbox.Sandbox) error {
	switch sb.State {
	case sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming: // dialing it resumes it
		return nil
	}
	switch {
	case sb.State == sandbox.Provisioning:
		return sandbox.Errorf(sandbox.NotRunning, "sandbox %s is still starting; try again in a moment", sb.Name)
	case sb.Cause != nil:
		return sandbox.Errorf(sandbox.Ended, "sandbox %s has ended (%s): %s", sb.Name, sb.Cause.Code, sb.Cause.Message)
	default:
		return sandbox.Errorf(sandbox.Ended, "sandbox %s has ended", sb.Name)
	}
}

// withoutPrefix returns r with the part of the path cut off that named the sandbox.
func withoutPrefix(r *http.Request, prefix string) *http.Request {
	r2 := *r
	u := *r.URL
	// The prefix holds no character that would be escaped.
	u.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(u.Path, prefix), "/")
	if u.RawPath != "" {
		u.RawPath = "/" + strings.TrimPrefix(strings.TrimPrefix(u.RawPath, prefix), "/")
	}
	r2.URL = &u
	return &r2
}

// roundTripper sends each request through the pool of its sandbox.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	return requestOf(r.Context()).pool.transport.RoundTrip(r.WithContext(withoutTrace{r.Context()}))
}

// buffers lends the copy buffers of all requests.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte { return b.pool.Get().(*[copyBuffer]byte)[:] }
func (b *buffers) Put(p []byte) {
	if len(p) == copyBuffer {
		b.pool.Put((*[copyBuffer]byte)(p))
	}
}
