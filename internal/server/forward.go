package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/conns"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/metrics"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/turn"
	"github.com/modbox/modbox/internal/worker"
)

const (
	// handoverLimit bounds the time for which the active server lets requests end when a standby waits, whose clients wait too.
	handoverLimit = 3 * time.Second
	// withdrawLimit bounds the time in which the active server tells the others that it ends.
	withdrawLimit = 2 * time.Second
	// checkLimit bounds the answer of a standby to GET /readyz.
	checkLimit = 4 * time.Second
)

// follower answers the requests to a server that waits for its turn, by the active server.
type follower struct {
	forwarder *forward.Forwarder
	urls      proxy.URLs
	wrapped   http.Handler // the forwarder
	metrics   http.Handler
	// active is whether this server is active: then it answers new connections itself.
	active atomic.Bool
}

// follow returns the handler of a standby, and begins to follow the active server.
func follow(ctx context.Context, cfg config.Config, listening net.Addr, version string, log *slog.Logger, cu *cleanup.Cleanup) (*follower, error) {
	urls, err := proxy.NewURLs(publicURL(cfg, listening), cfg.Domain)
	if err != nil {
		return nil, err
	}
	at, err := storeLocation(cfg)
	if err != nil {
		return nil, err
	}
	f := &follower{urls: urls, forwarder: forward.New(forward.Config{
		Dial: dialServers(cfg, worker.Forwarded), Caller: caller(cfg), Max: connectionLimits(cfg, log).Max, Log: log,
	})}
	f.wrapped = edge.Wrap(log, f.forwarder)
	registry := metrics.New(version)
	registry.MustRegister(f.forwarder.Collectors()...)
	registry.MustRegister(forward.Role(false))
	f.metrics = edge.Wrap(log, f.forwarder.Permitted(metrics.Handler(registry)))
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	following.Go(func() {
		database.Follow(ctx, at.Postgres, func(list []database.Active) { f.lead(list, log) }, log)
	})
	cu.Add(func() {
		cancel()
		following.Wait()
	})
	return f, nil
}

// lead tells the forwarder the active servers.
func (f *follower) lead(list []database.Active, log *slog.Logger) {
	var all []forward.Server
	for _, a := range list {
		if a.Address != "" {
			log.Info("an active server", "address", a.Address, "epoch", a.Epoch, "ranges", a.Ranges.Digits())
			all = append(all, forward.Server{Ranges: a.Ranges, Address: a.Address, Epoch: a.Epoch})
		}
	}
	if len(all) == 0 {
		log.Info("no server is active")
	}
	f.forwarder.Lead(all...)
}

// others returns the way to the other active servers; nil if there is one active server.
func (m *meanwhile) others(cfg config.Config) *forward.Forwarder {
	if m == nil || m.follower == nil || cfg.Replica.Active <= 1 {
		return nil
	}
	return m.follower.forwarder
}

// caller returns the client for which a request counts, behind the proxies of the operator.
func caller(cfg config.Config) func(*http.Request) string {
	return func(r *http.Request) (group string) {
		auth.Forwarded(cfg.HTTP.TrustedProxies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, group = audit.Client(r.RemoteAddr)
		})).ServeHTTP(nil, r)
		return group
	}
}

// dialServers returns how a standby connects to the active server for a protocol. The active server has made the authority.
func dialServers(cfg config.Config, protocol string) func(ctx context.Context, address string) (net.Conn, error) {
	var mu sync.Mutex
	var known *worker.Authority // guarded by mu
	return func(ctx context.Context, address string) (net.Conn, error) {
		mu.Lock()
		a := known
		mu.Unlock()
		if a == nil {
			var err error
			if a, err = worker.ReadAuthority(cmp.Or(cfg.Worker.SecretDir, filepath.Join(cfg.StateDir, statedir.WorkerDir))); err != nil {
				return nil, err
			}
		}
		conn, err := a.Dial(ctx, address, protocol)
		mu.Lock()
		defer mu.Unlock()
		if known = a; err != nil {
			known = nil // the operator may have replaced it
		}
		return conn, err
	}
}

// ServeHTTP implements [http.Handler].
func (f *follower) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.active.Load() {
		if r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close") // the client's next connection is to this server itself
		}
		f.wrapped.ServeHTTP(w, r)
		return
	}
	_, ofSandbox, _ := f.urls.Parse(r.Host, r.URL.EscapedPath())
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case ofSandbox || !read:
		f.wrapped.ServeHTTP(w, r)
	case r.URL.Path == "/healthz":
		writeStatus(w, http.StatusOK, `{"status":"ok","role":"standby"}`)
	case r.URL.Path == "/readyz":
		f.ready(w, r)
	case r.URL.Path == "/metrics":
		f.metrics.ServeHTTP(w, r)
	default:
		f.wrapped.ServeHTTP(w, r)
	}
}

// ready answers whether requests can be forwarded.
func (f *follower) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkLimit)
	defer cancel()
	if err := f.forwarder.Check(ctx); err != nil {
		writeStatus(w, http.StatusServiceUnavailable, `{"ready":false,"role":"standby","checks":{"active":"failing"}}`)
		return
	}
	writeStatus(w, http.StatusOK, `{"ready":true,"role":"standby","checks":{"active":"ok"}}`)
}

func writeStatus(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, body) // the client is gone when this fails
}

// leader is the part of the active server that standbys need: the listener for forwarded requests, and its address in the database. Its zero
// value is for a server without standbys.
type leader struct {
	http    *http.Server
	clients *conns.Tracker
	workers *worker.Listener
	ssh     *sshListener
	store   *store.Store
	at      database.Active
	log     *slog.Logger

	stop      context.CancelFunc
	announced sync.WaitGroup
}

// lead makes the part for standbys of a server that is about to be active.
func (p *parts) lead(cfg config.Config, front http.Handler, shell *sshListener, clients *conns.Tracker, log *slog.Logger) *leader {
	if !cfg.Standby {
		return &leader{}
	}
	p.metrics.MustRegister(forward.Role(true), turn.Collector(p.ranges))
	if p.others != nil {
		p.metrics.MustRegister(p.others.Collectors()...)
	}
	at := database.Active{Ranges: p.store.Ranges(), Address: cfg.Replica.At(p.workers.Addr()), Epoch: p.generation}
	h := httpServer(forward.Accept(front), clients, log)
	h.ReadHeaderTimeout = idleTimeout // standbys close connections that they do not use, and earlier
	return &leader{http: h, clients: clients, workers: p.workers, ssh: shell, store: p.store, at: at, log: log}
}

// serve serves forwarded requests, and tells the standbys where. It sends its error, which ends the server.
func (l *leader) serve(failed chan<- error) {
	if l.http == nil {
		return
	}
	listener := l.clients.ListenProxies(l.workers.FromServers(worker.Forwarded))
	go func() {
		if err := l.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			failed <- fmt.Errorf("serve forwarded requests: %w", err)
		}
	}()
	l.ssh.serveForwarded(l.workers, failed)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.announced.Go(func() {
		err := retry.Persist(ctx, l.log, "tell standbys where this server is", func() error { return l.store.Announce(ctx, l.at) })
		if err == nil {
			l.log.Info("standbys forward requests to this server", "address", l.at.Address, "epoch", l.at.Epoch)
		}
	})
}

// withdraw tells the standbys that this server does not take requests any more, and returns how long requests under way may take.
func (l *leader) withdraw(cfg config.Config) (drain time.Duration) {
	drain = cfg.HTTP.DrainTimeout.Std()
	if l.http == nil {
		return drain
	}
	l.stop()
	l.announced.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	if err := l.store.Announce(ctx, database.Active{Ranges: l.at.Ranges, Epoch: l.at.Epoch}); err != nil {
		l.log.Warn("standbys do not know yet that this server ends", "error", err)
	}
	waits, err := statedir.Awaited(cfg.StateDir)
	if err != nil {
		l.log.Error("it is not known whether a standby waits", "error", err)
	}
	if waits {
		return min(drain, handoverLimit)
	}
	return drain
}

// shutdown lets the requests under way end, at most until ctx ends.
func (s *Server) shutdown(ctx context.Context) error {
	ends := []func(context.Context) error{s.http.Shutdown, s.meanwhile.shutdown}
	if s.leader.http != nil {
		ends = append(ends, s.leader.http.Shutdown)
	}
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for i, end := range ends {
		all.Go(func() { errs[i] = end(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// close cuts off the requests under way.
func (s *Server) close() {
	_ = s.http.Close() // the process ends anyway
	if s.leader.http != nil {
		_ = s.leader.http.Close()
	}
}
