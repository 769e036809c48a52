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
	"time"
)

// workerHealth answers the probes of Kubernetes for a worker: GET /healthz succeeds while the worker runs, GET /readyz while it is
// connected to the server. Its zero value is ready for use.
type workerHealth struct{ connections atomic.Int32 }

// counted returns serve, which counts the connections that it serves.
func (h *workerHealth) counted(serve func(context.Context, net.Conn) error) func(context.Context, net.Conn) error {
	return func(ctx context.Context, conn net.Conn) error {
		h.connections.Add(1)
		defer h.connections.Add(-1)
		return serve(ctx, conn)
	}
}

// listen answers at an address until close is called.
func (h *workerHealth) listen(ctx context.Context, address string, log *slog.Logger) (close func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-listen: %w", err)
	}
	s := &http.Server{Handler: h.handler(), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	s.SetKeepAlivesEnabled(false) // the address is open to others
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
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
