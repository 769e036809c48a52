package forward

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
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
	late      *share.Budget
	asks      asks
	changed   broadcast.Broadcast // sent when the active server changes
	closed    context.Context     // ends with Close
	end       context.CancelFunc
	metrics   *counters

	mu sync.Mutex
	// The active server of each range, nil while none is known, and the last active server of each; guarded by mu.
	active, last [sandbox.RangeCount]*server
	turn         int            // guarded by mu; counts requests that any server answers
	under        int            // guarded by mu; requests under way
	waiting      map[string]int // guarded by mu; requests that wait, by caller
	waits        int            // guarded by mu; their sum
	well         time.Time      // guarded by mu; when the active server answered [Forwarder.Check] last
}

// Server is an active server, as the database names it.
type Server struct {
	// Ranges are the ranges of the shards of the sandboxes that the server works on.
	Ranges  sandbox.Ranges
	Address string
	Epoch   int64
}

// server is an active server.
type server struct {
	address string
	epoch   int64
	ranges  sandbox.Ranges
	// gone ends when another server is active in its place, which this server may not have noticed if its machine has vanished.
	gone    context.Context
	replace context.CancelFunc
}

// New returns a forwarder, which knows no active server yet.
func New(cfg Config) *Forwarder {
	f := &Forwarder{cfg: cfg, dials: make(chan struct{}, maxDials), kept: share.New(maxAllKept, time.Nanosecond), late: share.New(maxAllLateKept, time.Nanosecond), waiting: map[string]int{}}
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

// Lead tells the active servers, which share no range. Ranges that no server has wait for an owner. Requests to a server that another has replaced are cut off.
func (f *Forwarder) Lead(active ...Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = [sandbox.RangeCount]*server{}
	for _, a := range active {
		if a.Address != "" && a.Ranges != 0 {
			f.lead(a)
		}
	}
	f.changed.Send()
}

// lead sets the owner of some ranges.
//
// Preconditions: f.mu is held.
func (f *Forwarder) lead(a Server) {
	s := &server{address: a.Address, epoch: a.Epoch, ranges: a.Ranges}
	if known := f.last[a.Ranges.First()]; known != nil && known.address == s.address && known.epoch == s.epoch && known.ranges == s.ranges {
		s = known
	} else {
		s.gone, s.replace = context.WithCancel(context.Background())
	}
	for n := range sandbox.RangeCount {
		if !a.Ranges.HasRange(n) {
			continue
		}
		if before := f.last[n]; before != nil && before != s {
			before.replace()
			f.transport.CloseIdleConnections()
		}
		f.active[n], f.last[n] = s, s
	}
}

// Close ends the waits of requests. Requests that the active server has go on.
func (f *Forwarder) Close() {
	f.end()
	f.transport.CloseIdleConnections()
}

// anywhere is the range of requests that every server can answer.
const anywhere = -1

// alone reports whether a range has no active server at this moment.
func (f *Forwarder) alone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.active[:], nil)
}

// server returns the active server of a range, or for [anywhere] each active server in its turn, without the servers that a request could not reach unless there is no other. It returns nil for none, and
// a channel that is closed when the servers change.
func (f *Forwarder) server(part int, without []*server) (*server, <-chan struct{}) {
	changed := f.changed.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if part != anywhere {
		return f.active[part], changed
	}
	var all []*server
	for n, s := range f.active {
		if s != nil && s.ranges.First() == n {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, changed
	}
	f.turn++
	for i := range all {
		if s := all[(f.turn+i)%len(all)]; !slices.Contains(without, s) {
			return s, changed
		}
	}
	return all[f.turn%len(all)], changed
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

// Check returns nil if requests can be forwarded: an active server answers, or did a short time ago, while requests wait for the next.
func (f *Forwarder) Check(ctx context.Context) error {
	err := f.askAny(ctx)
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

// askAny asks the active servers whether they live, until one answers.
func (f *Forwarder) askAny(ctx context.Context) error {
	var tried []*server
	var err error
	for {
		s, _ := f.server(anywhere, tried)
		switch {
		case s == nil:
			return errors.New("no server is active")
		case slices.Contains(tried, s): // all are
			return err
		}
		if err = f.ask(ctx, s); err == nil {
			return nil
		}
		tried = append(tried, s)
	}
}

// ask asks an active server whether it lives.
func (f *Forwarder) ask(ctx context.Context, s *server) error {
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
