package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// standby is a standby, at a URL.
type standby struct {
	*Forwarder
	url string
}

// lead tells that a server works on all sandboxes.
func (s standby) lead(address string, epoch int64) {
	s.Lead(Server{Ranges: sandbox.AllRanges, Address: address, Epoch: epoch})
}

func newStandby(t *testing.T) standby {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f := New(Config{
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		Caller: func(r *http.Request) string { return r.RemoteAddr }, Max: 100, Log: log,
	})
	t.Cleanup(f.Close)
	s := httptest.NewServer(edge.Wrap(log, f))
	t.Cleanup(s.Close)
	return standby{f, s.URL}
}

// active returns the address of an active server.
func active(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(Accept(h))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.Listener.Addr().String()
}

func request(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, content)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// TestRequestAsItCame checks that the active server gets a request as the client has sent it, with the client's address, which the client cannot choose.
func TestRequestAsItCame(t *testing.T) {
	s := newStandby(t)
	got := make(chan *http.Request, 1)
	s.lead(active(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r
		w.Header().Set("X-Request-Id", "of the active server")
		w.Header().Set("Trailer", "X-End")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "got %s", body)
		w.Header().Set("X-End", "reached")
	}), 1)
	resp, body := request(t, "POST", s.url+"/a%2Fb//c?x=1;y=%zz", "text", clientHeader, "203.0.113.9:1", "Connection", clientHeader, "X-Forwarded-For", "198.51.100.7",
		"X-Forwarded-Proto", "https", "Forwarded", "for=198.51.100.7", keyHeader, "once", "Accept-Encoding", "gzip", "User-Agent", "")
	if resp.StatusCode != http.StatusTeapot || body != "got text" || resp.Trailer.Get("X-End") != "reached" || len(resp.Header.Values("X-Request-Id")) != 1 || resp.Header.Get("X-Request-Id") != "of the active server" {
		t.Errorf("the answer is %s %v %q %v", resp.Status, resp.Header, body, resp.Trailer)
	}
	r := <-got
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().IsLoopback() || from.Port() == 1 {
		t.Errorf("the request came from %q, %v", r.RemoteAddr, err)
	}
	if r.Header.Get(clientHeader) != "" {
		t.Errorf("the request has %s: %q", clientHeader, r.Header[clientHeader])
	}
	if r.RequestURI != "/a%2Fb//c?x=1;y=%zz" || r.Host != strings.TrimPrefix(s.url, "http://") {
		t.Errorf("the request is for %s of %s", r.RequestURI, r.Host)
	}
	for name, want := range map[string]string{"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https", "Forwarded": "for=198.51.100.7", keyHeader: "once", "Accept-Encoding": "gzip", "User-Agent": ""} {
		if have := strings.Join(r.Header.Values(name), ","); have != want {
			t.Errorf("%s is %q, want %q", name, have, want)
		}
	}
}

// TestAcceptNeedsTheClient checks that a request without the address of its client is refused.
func TestAcceptNeedsTheClient(t *testing.T) {
	address := active(t, func(http.ResponseWriter, *http.Request) { t.Error("it was served") })
	for _, client := range []string{"", "nobody", "203.0.113.9"} {
		if resp, _ := request(t, "GET", "http://"+address, "", clientHeader, client); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a request with the client %q: %s", client, resp.Status)
		}
	}
}

// TestWait checks that a request waits for an active server with its body.
func TestWait(t *testing.T) {
	s := newStandby(t)
	s.lead("127.0.0.1:1", 1) // nothing listens there, as after a crash
	answered := make(chan string, 1)
	go func() {
		_, body := request(t, "PUT", s.url, strings.Repeat("x", 1<<20))
		answered <- body
	}()
	for waits := 0; waits == 0; {
		s.mu.Lock()
		waits = s.waits
		s.mu.Unlock()
	}
	s.Lead()
	s.lead(active(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}), 2)
	if body := <-answered; body != fmt.Sprint(1<<20) {
		t.Errorf("the active server got %s bytes", body)
	}
	if s.waits != 0 || len(s.waiting) != 0 {
		t.Errorf("%d requests wait after all, %v", s.waits, s.waiting)
	}
}

// TestHoldIsBounded checks that requests wait for a while, and not too many of them, in sum and of a client.
func TestHoldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Caller: func(r *http.Request) string { return r.Header.Get("Caller") }, Max: maxWaiting + 2, Log: slog.New(slog.DiscardHandler)})
		ask := func(caller string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Caller", caller)
			f.ServeHTTP(w, r)
			return w
		}
		begin := time.Now()
		if w := ask("a"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || time.Since(begin) != MaxWait {
			t.Errorf("a request has waited %v, then %d %v", time.Since(begin), w.Code, w.Header())
		}
		fill := func(caller string, n int) {
			for range n {
				go ask(caller)
			}
			synctest.Wait()
		}
		refused := func(caller string) bool {
			begin := time.Now()
			w := ask(caller)
			return w.Code == http.StatusServiceUnavailable && time.Since(begin) == 0
		}
		fill("a", maxWaiting/4)
		if !refused("a") {
			t.Error("a client has more than its share of the requests that wait")
		}
		for _, caller := range []string{"b", "c", "d"} {
			fill(caller, maxWaiting/4)
		}
		if !refused("e") {
			t.Errorf("more than %d requests wait", maxWaiting)
		}
		f.mu.Lock()
		f.under = f.cfg.Max
		f.mu.Unlock()
		if !refused("f") {
			t.Errorf("more than %d requests are under way", f.cfg.Max)
		}
		time.Sleep(MaxWait) // of the bubble
		synctest.Wait()
		if f.waits != 0 || len(f.waiting) != 0 {
			t.Errorf("%d requests wait after all", f.waits)
		}
		begin = time.Now()
		f.under = 0
		go ask("a")
		synctest.Wait()
		f.Close()
		synctest.Wait()
		if f.waits != 0 || time.Since(begin) != 0 {
			t.Errorf("%d requests wait although the standby is being ended", f.waits)
		}
	})
}

// TestSentOnce checks which requests are sent again when the connection breaks before the answer.
func TestSentOnce(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		again              bool
	}{
		"read":              {"GET", "/v1/sandboxes/x", "", nil, true},
		"change":            {"POST", "/v1/sandboxes/x/exec", "{}", nil, false},
		"change_with_key":   {"POST", "/v1/sandboxes/x/exec", "{}", []string{keyHeader, "once"}, false},
		"no_body_with_key":  {"POST", "/v1/sandboxes/x/pause", "", []string{keyHeader, "once"}, false},
		"create":            {"POST", creates, "{}", nil, false},
		"create_with_key":   {"POST", creates, `{"image":"app:v1"}`, []string{keyHeader, "once"}, true},
		"large_with_key":    {"POST", creates, strings.Repeat("x", maxKept+1), []string{keyHeader, "once"}, false},
		"other_connections": {"GET", "/v1/sandboxes/x/exec/attach", "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandby(t)
			var executed atomic.Int32
			s.lead(active(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/first" {
					return
				}
				body, err := io.ReadAll(r.Body)
				if err != nil || string(body) != test.body {
					t.Errorf("the body is %d bytes, %v", len(body), err)
				}
				if executed.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
			}), 1)
			if resp, _ := request(t, "GET", s.url+"/first", ""); resp.StatusCode != http.StatusOK { // the connection is used again
				t.Fatal(resp.Status)
			}
			resp, body := request(t, test.method, s.url+test.path, test.body, test.headers...)
			if test.again {
				if resp.StatusCode != http.StatusOK || executed.Load() != 2 {
					t.Errorf("%s %s after %d attempts", resp.Status, body, executed.Load())
				}
				return
			}
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "" || !strings.Contains(body, "not known whether") || executed.Load() != 1 {
				t.Errorf("%s %v %s after %d attempts", resp.Status, resp.Header, body, executed.Load())
			}
		})
	}
}

// TestReplaced checks that streams and WebSockets of a server that vanished end when another server is active.
func TestReplaced(t *testing.T) {
	s := newStandby(t)
	lost := active(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			kind, text, err := c.Read(r.Context())
			if err == nil {
				_ = c.Write(r.Context(), kind, text) // without the echo, the client fails
			}
			_, _, _ = c.Read(r.Context())
			return
		}
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s.lead(lost, 1)
	resp, err := http.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, len("begun"))); err != nil {
		t.Fatal(err)
	}
	c, _, err := websocket.Dial(t.Context(), s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(t.Context(), websocket.MessageText, []byte("echo")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := c.Read(t.Context()); err != nil || string(text) != "echo" {
		t.Fatalf("the WebSocket answers %q, %v", text, err)
	}
	s.lead(lost, 1) // as a poll says it again
	s.Lead()
	s.lead(lost, 2) // it has started again
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("the WebSocket goes on")
	}
}

// TestHTTP2 checks that the body and the answer of a request by HTTP/2 are under way at the same time.
func TestHTTP2(t *testing.T) {
	s := newStandby(t)
	s.lead(active(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		_, _ = io.Copy(writer(func(p []byte) (int, error) {
			n, err := w.Write(p)
			return n, errors.Join(err, control.Flush())
		}), r.Body)
	}), 1)
	h2 := httptest.NewUnstartedServer(edge.Wrap(s.cfg.Log, s))
	h2.EnableHTTP2 = true
	h2.StartTLS()
	defer h2.Close()
	body, input := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", h2.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = input.Write([]byte("first")) }()
	resp, err := h2.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto)
	}
	for _, want := range []string{"first", "again"} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		if want == "first" {
			if _, err := io.WriteString(input, "again"); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = input.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v after the end", rest, err)
	}
}

// writer is a function that takes bytes.
type writer func([]byte) (int, error)

// Write implements [io.Writer].
func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestPermitted checks that a standby answers itself if the active server permits it.
func TestPermitted(t *testing.T) {
	s := newStandby(t)
	s.lead(active(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			edge.Error(w, r, sandbox.Errorf(sandbox.Forbidden, "no"))
			return
		}
		_, _ = io.WriteString(w, "of the active server")
	}), 1)
	own := httptest.NewServer(s.Permitted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") })))
	defer own.Close()
	if resp, body := request(t, "GET", own.URL, ""); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "forbidden") {
		t.Errorf("without a token: %s %s", resp.Status, body)
	}
	if resp, body := request(t, "GET", own.URL, "", "Authorization", "token"); resp.StatusCode != http.StatusOK || body != "own" {
		t.Errorf("with a token: %s %s", resp.Status, body)
	}
}

// TestCheck checks that a standby can forward requests while the active server answers, and a short time longer.
func TestCheck(t *testing.T) {
	s := newStandby(t)
	if err := s.Check(t.Context()); err == nil {
		t.Error("a standby without an active server can forward requests")
	}
	s.lead(active(t, func(http.ResponseWriter, *http.Request) {}), 1)
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	s.Lead()
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a short time after the server has ended: %v", err)
	}
	s.well = time.Now().Add(-MaxWait)
	if err := s.Check(t.Context()); err == nil {
		t.Error("a standby whose active server ended long ago can forward requests")
	}
}
