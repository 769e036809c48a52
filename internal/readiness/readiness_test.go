package readiness

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	if err := Wait(t.Context(), Server{Port: 80}, dial); err != nil || calls.Load() != 3 {
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
	if err := Wait(ctx, Server{Port: 80}, dial); err == nil || !strings.Contains(err.Error(), "418") {
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
	if err := Wait(ctx, Server{Port: 443, HTTPS: true}, dial); err != nil {
		t.Errorf("Wait() = %v for a server of HTTPS", err)
	}
}

// A server sees the host of the settings, and a handshake asks for its name.
func TestWaitForAHost(t *testing.T) {
	name := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "app.test:8443" {
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	}))
	srv.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		select {
		case name <- hello.ServerName:
		default:
		}
		return nil, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}
	if err := Wait(ctx, Server{Port: 8443, HTTPS: true, Host: "app.test:8443"}, dial); err != nil {
		t.Errorf("Wait() = %v for a server of one host", err)
	}
	if got := <-name; got != "app.test" {
		t.Errorf("a handshake asked for %q", got)
	}
}

// An attempt that hangs, in the dial or in the handshake, leaves nothing behind.
func TestWaitEndsHandshakes(t *testing.T) {
	for _, stage := range []string{"dial", "handshake"} {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun, open atomic.Int32
				all, end := context.WithCancel(t.Context())
				defer end() // also of what Wait left
				dial := func(ctx context.Context) (net.Conn, error) {
					begun.Add(1)
					open.Add(1)
					if stage == "dial" {
						defer open.Add(-1)
						select {
						case <-ctx.Done():
						case <-all.Done():
						}
						return nil, errors.New("nothing answered")
					}
					near, far := net.Pipe()
					context.AfterFunc(all, func() { _ = far.Close() })
					go func() {
						_, _ = io.Copy(io.Discard, far)
						open.Add(-1)
					}()
					return near, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- Wait(ctx, Server{Port: 8443, HTTPS: true}, dial) }()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if begun.Load() < 10 || open.Load() > 2 {
					t.Errorf("%d connections of %d are open", open.Load(), begun.Load())
				}
				cancel()
				if err := <-done; err == nil {
					t.Error("Wait() = nil")
				}
				synctest.Wait()
				if open.Load() != 0 {
					t.Errorf("%d connections are open after the end", open.Load())
				}
			})
		})
	}
}
