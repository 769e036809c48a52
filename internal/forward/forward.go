package forward

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/share"
)

const (
	// MaxWait bounds how long a request waits for an active server: a takeover takes some seconds.
	MaxWait = 15 * time.Second
	// retryPause is the time between two attempts to connect to the active server, and up to twice that.
	retryPause = 200 * time.Millisecond
	// dialTimeout bounds an attempt, with the wait for its place among maxDials: a server accepts a few connections at a time that have not proved yet who they are.
	dialTimeout = 3 * time.Second
	maxDials    = 32
	// idleTime is shorter than a server's limit for idle connections.
	idleTime = 30 * time.Second
	maxIdle  = 256
	// maxWaiting bounds the requests that wait for an active server; a client may have a quarter of them.
	maxWaiting = 1024
	// maxKept bounds the bodies of requests that can be sent again, of one request and in sum.
	maxKept    = 64 << 10
	maxAllKept = 16 << 20
	copyBuffer = 32 << 10
	// retryAfter is the Retry-After of requests that were not executed.
	retryAfter = 2 * time.Second
)

// Config has what a forwarder needs. All fields must be set.
type Config struct {
	// Dial connects to the listener of a server for forwarded requests.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Caller returns the client that a request counts for: its address, behind proxies of the operator.
	Caller func(r *http.Request) string
	// Max bounds the requests under way.
	Max int
	Log *slog.Logger
}

// Forwarder passes requests on to the active server. Safe for concurrent use.
type Forwarder struct {
	cfg       Config
	reverse   *httputil.ReverseProxy
	transport *http.Transport
	dials     chan struct{}
	kept      *share.Budget
	changed   broadcast.Broadcast // sent when the active server changes
	closed    context.Context     // ends with Close
	end       context.CancelFunc
	metrics   *counters

	mu      sync.Mutex
	active  *server        // guarded by mu; nil while none is known
	last    server         // guarded by mu; the last active server
	under   int            // guarded by mu; requests under way
	waiting map[string]int // guarded by mu; requests that wait, by caller
	waits   int            // guarded by mu; their sum
	well    time.Time      // guarded by mu; when the active server answered [Forwarder.Check] last
}

// server is an active server.
type server struct {
	address string
	epoch   int64
	// gone ends when another server is active, which this one may not have noticed if its machine has vanished.
	gone    context.Context
	replace context.CancelFunc
}

// New returns a forwarder, which knows no active server yet.
func New(cfg Config) *Forwarder {
	f := &Forwarder{cfg: cfg, dials: make(chan struct{}, maxDials), kept: share.New(maxAllKept, time.Nanosecond), waiting: map[string]int{}}
	f.closed, f.end = context.WithCancel(context.Background())
	f.metrics = newCounters(f)
	f.transport = &http.Transport{
		DialTLSContext: f.dial, DisableCompression: true, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTime,
		ExpectContinueTimeout: time.Second, ReadBufferSize: copyBuffer, WriteBufferSize: copyBuffer,
	}
	f.reverse = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: f, FlushInterval: -1, BufferPool: &buffers{}, ErrorHandler: f.failed,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug), // of clients and streams that end
	}
	return f
}

// Lead tells the address and the epoch of the active server; "" for none at the moment. Requests to a server that another has replaced are cut off.
func (f *Forwarder) Lead(address string, epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case address == "":
		f.active = nil
	case f.last.address == address && f.last.epoch == epoch:
		f.active = &f.last
	default:
		if f.last.replace != nil {
			f.last.replace()
		}
		f.transport.CloseIdleConnections()
		f.last = server{address: address, epoch: epoch}
		f.last.gone, f.last.replace = context.WithCancel(context.Background())
		f.active = &f.last
	}
	f.changed.Send()
}

// Close ends the waits of requests. Requests that the active server has go on.
func (f *Forwarder) Close() {
	f.end()
	f.transport.CloseIdleConnections()
}

// server returns the active server, nil for none, and a channel that is closed when it changes.
func (f *Forwarder) server() (*server, <-chan struct{}) {
	changed := f.changed.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active == nil {
		return nil, changed
	}
	s := *f.active
	return &s, changed
}

// begin counts a request. Errors: Unavailable when there are too many.
func (f *Forwarder) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under >= f.cfg.Max {
		f.metrics.refused.Inc()
		return unavailable(nil, "this standby forwards as many requests as it may")
	}
	f.under++
	return nil
}

func (f *Forwarder) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
}

// addWaiter counts a request that waits. Errors: Unavailable when there are too many.
func (f *Forwarder) addWaiter(caller string) (release func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits >= maxWaiting || f.waiting[caller] >= maxWaiting/4 {
		f.metrics.refused.Inc()
		return nil, unavailable(nil, "no server is active at this moment, and too many requests wait for one")
	}
	f.waits++
	f.waiting[caller]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waits--
		if f.waiting[caller]--; f.waiting[caller] == 0 {
			delete(f.waiting, caller)
		}
	}, nil
}

// unreached wraps the errors of attempts to connect, after which nothing was sent.
type unreached struct{ error }

// Unwrap returns the reason.
func (e unreached) Unwrap() error { return e.error }

// dial connects to the active server.
func (f *Forwarder) dial(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	select {
	case f.dials <- struct{}{}:
		defer func() { <-f.dials }()
	case <-ctx.Done():
		return nil, unreached{ctx.Err()}
	}
	conn, err := f.cfg.Dial(ctx, address)
	if err != nil {
		return nil, unreached{err}
	}
	return conn, nil
}

// wait waits until the active server changes, or for the next attempt to connect to it. Errors: Unavailable when a request has waited for
// long enough; of ctx.
func (f *Forwarder) wait(ctx context.Context, until time.Time, changed <-chan struct{}, connect bool) error {
	rest := time.Until(until)
	if rest <= 0 {
		f.metrics.refused.Inc()
		return unavailable(nil, "no server is active at this moment")
	}
	if connect {
		rest = min(rest, retryPause+rand.N(retryPause))
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-f.closed.Done():
		return unavailable(nil, "this server is being ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Check returns nil if requests can be forwarded: the active server answers, or did a short time ago, while requests wait for the next.
func (f *Forwarder) Check(ctx context.Context) error {
	err := f.ask(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.well = time.Now()
	}
	if err != nil && time.Since(f.well) < MaxWait {
		return nil
	}
	return err
}

// ask asks the active server whether it lives.
func (f *Forwarder) ask(ctx context.Context) error {
	s, _ := f.server()
	if s == nil {
		return errors.New("no server is active")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/healthz", nil)
	if err != nil {
		return err
	}
	r.Header.Set(clientHeader, "127.0.0.1:0")
	resp, err := f.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("the active server answers " + resp.Status)
	}
	return nil
}

func unavailable(cause error, text string) error {
	err := sandbox.Wrap(sandbox.Unavailable, cause, "%s; try again", text)
	err.RetryAfter = retryAfter
	return err
}

// buffers lends the buffers in which answers are copied.
type buffers struct{ pool sync.Pool }

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[copyBuffer]byte); ok {
		return p[:]
	}
	return make([]byte, copyBuffer)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(p []byte) { b.pool.Put((*[copyBuffer]byte)(p)) }
