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

	"github.com/maypok86/otter/v2"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/sandbox"
)

// Sandboxes is where the proxy finds sandboxes: lifecycle.Service.
type Sandboxes interface {
	// ByLabel returns the sandbox with that host label, in any state, or NotFound.
	ByLabel(ctx context.Context, label string) (sandbox.Sandbox, error)
	// Dial connects to a port of a running sandbox, with the errors of driver.Dial.
	Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error)
}

// Routes are paths of every sandbox's URL that the server answers itself.
type Routes interface {
	// ServeSandbox answers a request to a running sandbox's own URL, whose path
	// has no prefix any more, and reports whether it did: false passes it on.
	ServeSandbox(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox) bool
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
	// poolTime is how long an unused pool is kept; its connections go earlier.
	poolTime = 10 * time.Minute
	maxPools = 10_000
)

// Proxy carries requests to sandboxes. Safe for concurrent use.
type Proxy struct {
	cfg       Config
	sandboxes Sandboxes
	routes    Routes
	logger    *slog.Logger
	pools     *otter.Cache[sandbox.ID, *pool]
	reverse   *httputil.ReverseProxy
	share     *share
}

// New returns a proxy. routes may be nil.
func New(cfg Config, sandboxes Sandboxes, routes Routes, logger *slog.Logger) (*Proxy, error) {
	if cfg.URLs.public.Host == "" || sandboxes == nil || logger == nil {
		return nil, errors.New("proxy.New: URLs, sandboxes and logger must be set")
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
	pools, err := otter.New(&otter.Options[sandbox.ID, *pool]{
		MaximumSize:      maxPools,
		ExpiryCalculator: otter.ExpiryAccessing[sandbox.ID, *pool](poolTime),
		OnDeletion: func(e otter.DeletionEvent[sandbox.ID, *pool]) {
			e.Value.transport.CloseIdleConnections()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make connection pools: %w", err)
	}
	p := &Proxy{cfg: cfg, sandboxes: sandboxes, routes: routes, logger: logger, pools: pools, share: newShare(cfg.MaxRequests)}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:   p.rewrite,
		Transport: roundTripper{},
		// Answers of unknown length are flushed at once in any case. For the others
		// "at once" would cost a goroutine and a second packet for each small answer.
		FlushInterval:  flushInterval,
		ErrorLog:       log.New(io.Discard, "", 0), // what sandboxes do wrong is not our log's matter
		BufferPool:     &buffers{sync.Pool{New: func() any { return new([copyBuffer]byte) }}},
		ModifyResponse: p.modifyResponse,
		ErrorHandler:   p.answerError,
	}
	return p, nil
}

// Close closes idle connections. Requests under way go on.
func (p *Proxy) Close() {
	p.pools.InvalidateAll()
	p.pools.StopAllGoroutines()
}

// Forget closes the idle connections to a sandbox. Calling it at a sandbox's end
// is a courtesy: they would end with it or after some seconds.
func (p *Proxy) Forget(id sandbox.ID) { p.pools.Invalidate(id) }

// pool is the connections to one sandbox.
type pool struct {
	transport *http.Transport
	slots     chan struct{} // one for each request under way
}

func (p *Proxy) pool(id sandbox.ID) *pool {
	pl, _ := p.pools.ComputeIfAbsent(id, func() (*pool, bool) {
		return &pool{
			slots: make(chan struct{}, p.cfg.MaxConnections),
			transport: &http.Transport{
				DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
					ctx, cancel := context.WithTimeout(ctx, dialTimeout)
					defer cancel()
					return p.sandboxes.Dial(ctx, id, portOf(addr))
				},
				DisableCompression:     true,
				IdleConnTimeout:        idleTimeout,
				MaxIdleConnsPerHost:    maxIdlePerPort,
				ResponseHeaderTimeout:  p.cfg.ResponseTimeout,
				MaxResponseHeaderBytes: maxResponseHeader,
				ReadBufferSize:         copyBuffer,
				WriteBufferSize:        copyBuffer,
			},
		}, false
	})
	return pl
}

// request is what one proxied request carries through httputil.ReverseProxy.
type request struct {
	target Target
	sb     sandbox.Sandbox
	pool   *pool
	answer http.Header // of the answer, as far as it is ours
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

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, target Target) {
	if target.Prefix != "" {
		if r.URL.EscapedPath() == target.Prefix && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !upgrading(r) {
			// Relative links of the page would otherwise lead out of the sandbox.
			u := *r.URL
			u.Path += "/"
			http.Redirect(w, r, u.RequestURI(), http.StatusTemporaryRedirect)
			return
		}
	}
	sb, err := p.sandboxes.ByLabel(r.Context(), target.Label)
	if err == nil {
		err = usable(&sb)
	} else if sandbox.CodeOf(err) == sandbox.NotFound {
		err = sandbox.Errorf(sandbox.NotFound, "there is no sandbox at this URL")
	}
	if err != nil {
		if sandbox.CodeOf(err) == sandbox.Ended {
			p.Forget(sb.ID)
		}
		p.writeError(w, r, err)
		return
	}
	record := access.FromContext(r.Context())
	record.In(string(sb.ID), string(sb.Workspace))
	record.LetBodyRest(p.cfg.ResponseTimeout)
	leave, err := p.share.enter(sb.Workspace)
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	defer leave()
	if target.Prefix != "" {
		r = withoutPrefix(r, target.Prefix)
	}
	if target.Port == 0 && p.routes != nil && p.routes.ServeSandbox(w, r, sb) {
		return
	}
	if err := checkUpgrade(r); err != nil {
		p.writeError(w, r, err)
		return
	}
	pl := p.pool(sb.ID)
	select {
	case pl.slots <- struct{}{}:
		defer func() { <-pl.slots }()
	default:
		p.writeError(w, r, sandbox.Errorf(sandbox.Unavailable, "%d requests to this sandbox are under way, which is the maximum", p.cfg.MaxConnections))
		return
	}
	if target.Port == 0 {
		target.Port = sb.Port()
	}
	if r.Body != nil && r.Body != http.NoBody {
		// The sandbox may answer while the body comes; a transport without, as in tests.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	ctx := context.WithValue(r.Context(), contextKey{}, &request{target: target, sb: sb, pool: pl, answer: w.Header()})
	p.reverse.ServeHTTP(w, r.WithContext(ctx))
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
