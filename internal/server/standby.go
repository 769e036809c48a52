package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/certificate"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/conns"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	// standbyRetry is the Retry-After of requests to a server that starts.
	standbyRetry = 2 * time.Second
	// stallLimit is the time for which the active server may stand still; then the kernel ends it, so that a standby gets its turn.
	stallLimit = 15 * time.Second
	// databaseLimit is the time after which the active server ends if it cannot write to its database: a standby that reaches the database
	// gets its turn.
	databaseLimit = 45 * time.Second
	// lockCheck is the interval of the checks of the lock of the state directory, and lockLimit the time after which a server ends
	// if none has succeeded: a file server keeps a lock for longer (90 seconds with NFSv4).
	lockCheck = 5 * time.Second
	lockLimit = time.Minute
	// takenPause is the time between two attempts to open the database while another server has it.
	takenPause = time.Second
)

// awaitTurn listens, and waits until no other server works on the state directory. Meanwhile the active server answers requests.
func awaitTurn(ctx context.Context, cfg config.Config, version string, log *slog.Logger, cu *cleanup.Cleanup) (l net.Listener, m *meanwhile, err error) {
	if l, err = listen(cfg, log, cu); err != nil {
		return nil, nil, err
	}
	f, err := follow(ctx, cfg, l.Addr(), version, log, cu)
	if err != nil {
		return nil, nil, err
	}
	if m, err = answerMeanwhile(cfg, l, f, log, cu); err == nil {
		err = m.forwardSSH(ctx, cfg, log, cu)
	}
	if err != nil {
		return nil, nil, err
	}
	log.Info("waiting until no other server works on the state directory", "address", l.Addr().String(), "state_dir", cfg.StateDir)
	t := &turn{}
	if err := endStalled(stallLimit, t.well); err != nil { // before the lock, with which it must not stand still
		log.Warn("a server that stands still keeps its standbys from their turn: the kernel refuses a timer", "error", err)
	}
	if os.Getpid() == 1 {
		log.Warn("the kernel does not end a stopped server that is the first process of its container, so its standbys do not get their turn: use an init process (docker run --init, shareProcessNamespace)")
	}
	if err := t.take(ctx, cfg, log); err != nil {
		return nil, nil, err
	}
	log.Info("this server has its turn")
	return l, m, nil
}

// turn is the lock of the state directory of a server with standbys. It ends with the process, and not before: requests and work in the
// background may outlast everything else.
type turn struct {
	held atomic.Pointer[statedir.Held] // nil before
	// confirmed is the uptime at which the lock was held for sure.
	confirmed atomic.Int64
}

// take waits until the database answers and no other server works on the state directory. A server that cannot reach the database
// leaves the lock to the others.
func (t *turn) take(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	for {
		if err := awaitDatabase(ctx, cfg, log); err != nil {
			return err
		}
		held, err := statedir.Await(ctx, cfg.StateDir, cfg.StateDir)
		if err != nil {
			return err
		}
		if err := reachDatabase(ctx, cfg); err != nil {
			held.Release()
			continue
		}
		t.confirmed.Store(int64(uptime()))
		t.held.Store(held)
		go t.watch(log) // until the process ends
		return nil
	}
}

// watch ends the process when the lock is lost, because another server may have it.
func (t *turn) watch(log *slog.Logger) {
	for range time.Tick(lockCheck) {
		if err := t.held.Load().Check(); err != nil {
			log.Error("the lock of the state directory is lost: the server ends", "error", err)
			os.Exit(1)
		}
		t.confirmed.Store(int64(uptime()))
	}
}

// well reports whether the server may go on: it has no turn yet, or had the lock a short time ago.
func (t *turn) well() bool {
	return t.held.Load() == nil || uptime()-time.Duration(t.confirmed.Load()) < lockLimit
}

// awaitDatabase waits until the database answers.
func awaitDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	for {
		err := reachDatabase(ctx, cfg)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			log.Warn("waiting until the database answers", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(databaseCheck):
		}
	}
}

// reachDatabase returns why the database cannot be reached; nil for every answer, which the start judges.
func reachDatabase(ctx context.Context, cfg config.Config) error {
	st, err := openOtherStore(ctx, cfg)
	if err == nil {
		return st.Close()
	}
	if sandbox.CodeOf(err) == sandbox.Unavailable || ctx.Err() != nil {
		return err
	}
	return nil
}

// meanwhile answers requests on a listener until the server is active. A nil meanwhile answers none.
type meanwhile struct {
	http     *http.Server
	listener net.Listener
	follower *follower // nil for a server that only starts
	served   chan struct{}
	passed   sync.Once
	// ssh listens for SSH clients, and secondSSH for the SSH clients of a standby; nil for none.
	ssh, secondSSH net.Listener
}

// answerMeanwhile answers requests on l until [meanwhile.pass]: by f, or, if that is nil, with [notActive]. Connections that come afterwards wait for the server.
func answerMeanwhile(cfg config.Config, l net.Listener, f *follower, log *slog.Logger, cu *cleanup.Cleanup) (*meanwhile, error) {
	second, err := secondListener(l)
	if err != nil {
		return nil, err
	}
	m := &meanwhile{listener: second, follower: f, served: make(chan struct{})}
	if f != nil {
		clients := conns.New(conns.Limits{Max: connectionLimits(cfg, log).Max}, nil) // the active server knows whose requests they are
		m.http, m.listener = httpServer(f, clients, log), clients.Listen(second)
	} else {
		m.http = &http.Server{Handler: edge.Wrap(log, notActive()), ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
		m.http.SetKeepAlivesEnabled(false)
	}
	serve := m.http.Serve
	if cfg.TLS.Cert != "" {
		files, err := certificate.NewFiles(cfg.TLS.Cert, cfg.TLS.Key, log)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tls.cert: %w", err), second.Close())
		}
		m.http.TLSConfig = files.TLS()
		serve = func(l net.Listener) error { return m.http.ServeTLS(l, "", "") }
	}
	go func() {
		defer close(m.served)
		if err := serve(m.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			log.Error("no requests are answered until the server is active", "error", err)
		}
	}()
	cu.Add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cfg.HTTP.DrainTimeout.Std())
		defer cancel()
		_ = m.shutdown(ctx) // the process ends anyway
	})
	return m, nil
}

// secondListener returns another listener of the same socket: to close it does not close l.
func secondListener(l net.Listener) (net.Listener, error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listen on %s: not TCP", l.Addr())
	}
	file, err := tcp.File()
	if err != nil {
		return nil, err
	}
	second, err := net.FileListener(file)
	return second, errors.Join(err, file.Close())
}

// pass leaves new connections to the server. The requests under way, and the connections of a standby, go on.
func (m *meanwhile) pass() {
	if m == nil {
		return
	}
	m.passed.Do(func() {
		if m.follower == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // the answers are short
			defer cancel()
			_ = m.shutdown(ctx)
			return
		}
		m.follower.active.Store(true)
		_ = m.listener.Close()
		<-m.served
		if m.secondSSH != nil {
			_ = m.secondSSH.Close()
		}
	})
}

// shutdown ends the requests that wait for an active server, lets others end until ctx ends, and then cuts them off.
func (m *meanwhile) shutdown(ctx context.Context) error {
	if m == nil {
		return nil
	}
	if m.follower != nil {
		m.follower.forwarder.Close()
	}
	err := m.http.Shutdown(ctx)
	if err != nil {
		_ = m.http.Close()
	}
	<-m.served
	return err
}

// notActive answers the requests to a server that starts.
func notActive() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, status int, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, status, body) })
	}
	answer("GET /healthz", http.StatusOK, `{"status":"ok"}`)
	answer("GET /readyz", http.StatusServiceUnavailable, `{"ready":false,"checks":{"active":"failing"}}`)
	mux.Handle("/", edge.Handler(func(http.ResponseWriter, *http.Request) error {
		err := sandbox.Errorf(sandbox.Unavailable, "this server starts; try again")
		err.RetryAfter = standbyRetry
		return err
	}))
	return mux
}

// afterOthers calls open, again while another server has the database if this server is a standby: the session of a server whose machine
// vanished lasts until PostgreSQL notices.
func afterOthers[T any](ctx context.Context, cfg config.Config, log *slog.Logger, open func() (T, error)) (T, error) {
	for said := false; ; said = true {
		opened, err := open()
		if !cfg.Standby || !errors.Is(err, database.ErrTaken) {
			return opened, err
		}
		if !said {
			log.Warn("waiting until no other server uses the database", "error", err)
		}
		select {
		case <-ctx.Done():
			return opened, context.Cause(ctx)
		case <-time.After(takenPause):
		}
	}
}
