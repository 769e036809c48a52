package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/certificate"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/conns"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/turn"
)

const (
	// standbyRetry is the Retry-After of requests to a server that starts.
	standbyRetry = 2 * time.Second
	// databaseLimit is the time after which the active server ends if it cannot write to its database: a standby that reaches the database
	// gets its turn.
	databaseLimit = 45 * time.Second
	// takenPause is the time between two attempts to open the database while another server has it.
	takenPause = time.Second
)

// awaitTurn listens, and waits until no other server works on the state directory, or on one of its parts. Meanwhile the active servers answer
// requests. It returns the ranges of shards that this server works on.
func awaitTurn(ctx context.Context, cfg config.Config, version string, log *slog.Logger, cu *cleanup.Cleanup) (l net.Listener, m *meanwhile, r sandbox.Ranges, err error) {
	if l, err = listen(cfg, log, cu); err != nil {
		return nil, nil, 0, err
	}
	f, err := follow(ctx, cfg, l.Addr(), version, log, cu)
	if err != nil {
		return nil, nil, 0, err
	}
	if m, err = answerMeanwhile(cfg, l, f, log, cu); err == nil {
		err = m.forwardSSH(ctx, cfg, log, cu)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	log.Info("waiting until no other server works on the state directory", "address", l.Addr().String(), "state_dir", cfg.StateDir, "active_servers", len(cfg.Replica.Parts()))
	t, err := turn.Take(ctx, turn.Config{
		StateDir: cfg.StateDir, Parts: cfg.Replica.Parts(), Log: log,
		Look:    func(ctx context.Context) (bool, error) { return lookAtDatabase(ctx, cfg) },
		Whole:   func(ctx context.Context) (bool, error) { return mustDivide(ctx, cfg) },
		Prepare: func(ctx context.Context) error { return prepareDatabase(ctx, cfg, log) },
	})
	if err != nil {
		return nil, nil, 0, err
	}
	log.Info("this server has its turn", "shard_ranges", t.Ranges().Digits())
	return l, m, t.Ranges(), nil
}

// lookAtDatabase reports whether the database has the tables of this program. Errors: it cannot be reached; other answers are judged by the start.
func lookAtDatabase(ctx context.Context, cfg config.Config) (ready bool, err error) {
	st, err := openOtherStore(ctx, cfg)
	switch {
	case err == nil:
		return true, st.Close()
	case sandbox.CodeOf(err) == sandbox.Unavailable || ctx.Err() != nil:
		return false, err
	}
	return sandbox.CodeOf(err) != sandbox.NotFound && !errors.Is(err, database.ErrOlder), nil
}

// prepareDatabase makes or updates the tables of the database, which no server of the state directory uses.
func prepareDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	at, err := storeLocation(cfg)
	if err != nil {
		return err
	}
	mark, _, err := installation.Read(cfg.StateDir)
	if err != nil {
		return err
	}
	at.Postgres.Reached = mark.Identity
	st, err := afterOthers(ctx, cfg, log, func() (*store.Store, error) { return store.OpenAt(ctx, at) })
	if err != nil {
		return err
	}
	return st.Close()
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
