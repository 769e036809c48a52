package readiness

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// server answers with handler; the result dials it.
func server(t *testing.T, handler http.HandlerFunc) func(context.Context) (net.Conn, error) {
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}
}

func TestWait(t *testing.T) {
	var calls atomic.Int32
	dial := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			if r.URL.Path != "/" {
				t.Errorf("request of %s", r.URL)
			}
		}
	})
	if err := Wait(t.Context(), 80, false, dial); err != nil || calls.Load() != 3 {
		t.Errorf("Wait() = %v after %d requests, want the third to be the first with 2xx", err, calls.Load())
	}
}

func TestWaitReturnsTheLastError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int32
	dial := server(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 2 {
			cancel() // during the second request
		}
		w.WriteHeader(http.StatusTeapot)
	})
	if err := Wait(ctx, 80, false, dial); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("Wait() = %v, want the status of the first request", err)
	}
}

func TestWaitByHTTPS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}
	if err := Wait(ctx, 443, true, dial); err != nil {
		t.Errorf("Wait() = %v for a server of HTTPS", err)
	}
}
