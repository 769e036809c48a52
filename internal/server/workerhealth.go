package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/modbox/modbox/internal/conns"
)

// workerHealth answers the probes of Kubernetes for a worker: GET /healthz succeeds while the worker runs, GET /readyz while the
// server uses its connection. Its zero value is ready for use.
type workerHealth struct{ connections atomic.Int32 }

// accepted counts a connection that the server uses, until ended is called.
func (h *workerHealth) accepted() (ended func()) {
	h.connections.Add(1)
	return func() { h.connections.Add(-1) }
}

// listen answers at an address until close is called.
func (h *workerHealth) listen(ctx context.Context, address string, log *slog.Logger) (close func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-listen: %w", err)
	}
	guard := conns.New(plainLimits, nil) // the address is open to others
	s := &http.Server{
		Handler: h.handler(), ConnState: guard.State, ConnContext: guard.Context,
		ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.SetKeepAlivesEnabled(false)
	go func() {
		if err := s.Serve(guard.Listen(l)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("probes are not answered any more", "error", err)
		}
	}()
	return func() { _ = s.Close() }, nil
}

func (h *workerHealth) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h.connections.Load() == 0 {
			http.Error(w, "the worker is not connected to its server", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}
