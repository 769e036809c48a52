package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/certificate"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	// standbyRetry is the Retry-After of requests to a server that is not active.
	standbyRetry = 2 * time.Second
	// stallLimit is the time for which the active server may stand still; then the kernel ends it, so that a standby gets its turn.
	stallLimit = 15 * time.Second
	// databaseLimit is the time after which the active server ends if it cannot write to its database: a standby that reaches the database
	// gets its turn.
	databaseLimit = 45 * time.Second
	// heldCheck is the interval of the checks of the lock of the state directory, and heldLimit the time after which a server ends
	// if none has succeeded: a file server keeps a lock for longer (90 seconds with NFSv4).
	heldCheck = 5 * time.Second
	heldLimit = time.Minute
	// takenPause is the time between two attempts to open the database while another server has it.
	takenPause = time.Second
)

// awaitTurn listens, and waits until no other server works on the state directory. Until answered is called, requests get the
// answers of [notActive].
func awaitTurn(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) (l net.Listener, answered func(), err error) {
	if l, err = listen(cfg, log, cu); err != nil {
		return nil, nil, err
	}
	if answered, err = answerMeanwhile(cfg, l, log, cu); err != nil {
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
	return l, answered, nil
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
	for range time.Tick(heldCheck) {
		if err := t.held.Load().Check(); err != nil {
			log.Error("the lock of the state directory is lost: the server ends", "error", err)
			os.Exit(1)
		}
		t.confirmed.Store(int64(uptime()))
	}
}

// well reports whether the server may go on: it has no turn yet, or had the lock a short time ago.
func (t *turn) well() bool {
	return t.held.Load() == nil || uptime()-time.Duration(t.confirmed.Load()) < heldLimit
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

// answerMeanwhile answers requests on l with [notActive] until answered is called, once or several times. Connections that come afterwards
// wait for the server.
func answerMeanwhile(cfg config.Config, l net.Listener, log *slog.Logger, cu *cleanup.Cleanup) (answered func(), err error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listen on %s: not TCP", l.Addr())
	}
	file, err := tcp.File()
	if err != nil {
		return nil, err
	}
	second, err := net.FileListener(file) // to close it does not close l
	err = errors.Join(err, file.Close())
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: edge.Wrap(log, notActive()), ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	s.SetKeepAlivesEnabled(false) // so that no client stays with a standby
	serve := s.Serve
	if cfg.TLS.Cert != "" {
		files, err := certificate.NewFiles(cfg.TLS.Cert, cfg.TLS.Key, log)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tls.cert: %w", err), second.Close())
		}
		s.TLSConfig = files.TLS()
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(second); !errors.Is(err, http.ErrServerClosed) {
			log.Error("no requests are answered until the server is active", "error", err)
		}
	}()
	answered = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			_ = s.Close() // its answers are short: the client has stopped reading
		}
		<-ended
	}
	cu.Add(answered) // at the latest
	return answered, nil
}

// notActive answers the requests to a server that starts or waits for its turn.
func notActive() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, status int, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintln(w, body) // the client is gone when this fails
		})
	}
	answer("GET /healthz", http.StatusOK, `{"status":"ok"}`)
	answer("GET /readyz", http.StatusServiceUnavailable, `{"ready":false,"checks":{"active":"failing"}}`)
	mux.Handle("/", edge.Handler(func(http.ResponseWriter, *http.Request) error {
		err := sandbox.Errorf(sandbox.Unavailable, "this server starts, or is a standby of another server; try again, or send requests to the active server, whose GET /readyz answers with 200")
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
