package agent_test

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestRequestsToASocket sends requests to a server on a Unix socket: they share a connection, and a request whose connection turns out to be
// closed gets another.
func TestRequestsToASocket(t *testing.T) { eachWay(t, testRequestsToASocket) }

func testRequestsToASocket(t *testing.T, e *env) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn // guarded by mu
	)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }),
		ConnState: func(c net.Conn, state http.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			if state == http.StateNew {
				conns = append(conns, c)
			}
		},
	}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	request := func(text string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Idempotency-Key"] = nil
		resp, err := e.RoundTripSocket(path, req)
		if err != nil {
			t.Fatalf("RoundTripSocket() = %v", err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != text {
			t.Errorf("the answer is %q, %v, want %q", got, err, text)
		}
	}
	want := func(n int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(conns) != n {
			t.Errorf("the server has accepted %d connections, want %d", len(conns), n)
		}
	}
	for range 3 {
		request("shared")
	}
	want(1)
	mu.Lock()
	conns[0].Close() // the agent and the client notice it at some time
	mu.Unlock()
	request("after the server closed the connection")
	want(2)
	e.Reset()
	request("after the connections to the agent were closed")
	want(3)
}
