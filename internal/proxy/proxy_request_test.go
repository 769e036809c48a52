package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
)

// seesHost answers a request and each message of a WebSocket with the host that it saw, and redirects from /to.
var seesHost = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if to := r.URL.Query().Get("to"); to != "" {
		w.Header().Set("Content-Location", to)
		http.Redirect(w, r, to, http.StatusFound)
		return
	}
	if r.Header.Get("Upgrade") == "" {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		w.Header().Set("Set-Cookie", "a=b; Domain=box.test")
		fmt.Fprintf(w, "%s %s forwarded %s %s", scheme, r.Host, r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Forwarded-Proto"))
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, append([]byte(r.Host+" "), b...)) != nil {
			return
		}
	}
})

// message sends a message to a WebSocket at a path, and returns the answer.
func (w *world) message(path, text string) string {
	w.t.Helper()
	opts := &websocket.DialOptions{HTTPClient: w.server.Client()}
	if !strings.HasPrefix(path, "/s/") {
		opts.Host = w.label + ".box.test"
	}
	c, resp, err := websocket.Dial(w.t.Context(), w.server.URL+path, opts)
	if err != nil {
		w.t.Fatalf("WebSocket %s: %v, %+v", path, err, resp)
	}
	defer c.CloseNow()
	if err := c.Write(w.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		w.t.Fatal(err)
	}
	_, b, err := c.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// A server sees the host of the settings. Everything else goes by the host that the visitor named: the sandbox, the
// forwarding headers, and what the answer may do.
func TestRequestHost(t *testing.T) {
	w := newWorld(t, seesHost)
	w.set(func(sb *sandbox.Sandbox) { sb.Network.RequestHost = "${PORT}.example.com:${PORT}" })
	const masked = "8080.example.com:8080"
	prefix := "/s/" + w.label
	at := strings.TrimPrefix(w.server.URL, "http://")
	for path, host := range map[string]string{"/": w.label + ".box.test", prefix + "/": at} {
		resp, body := w.do(w.request("GET", path, nil))
		if want := "http " + masked + " forwarded " + host + " http"; body != want {
			t.Errorf("%s: the server saw %q, want %q", path, body, want)
		}
		if strings.Contains(resp.Header.Get("Set-Cookie"), "Domain") || (path != "/" && resp.Header.Get("Content-Security-Policy") == "") {
			t.Errorf("%s: the answer is not kept to its sandbox: %v", path, resp.Header)
		}
		if got := w.message(path, "hello"); got != masked+" hello" {
			t.Errorf("%s: a WebSocket answered %q", path, got)
		}
	}
	for to, want := range map[string]string{
		"http://" + masked + "/login?x=1":     "/login?x=1",
		"https://" + strings.ToUpper(masked):  "/",
		"http://" + masked + "?x":             "/?x",
		"http://" + masked + "//elsewhere":    "/elsewhere",
		"/login":                              "/login",
		"http://elsewhere/a":                  "http://elsewhere/a",
		"http://" + masked + `/\elsewhere/`:   "/elsewhere/",
		"http://" + masked + `/\/\elsewhere/`: "/elsewhere/",
		"//" + masked + "/login":              "/login",
		"app://" + masked + "/login":          "app://" + masked + "/login",
		"http://8080.example.com/login":       "http://8080.example.com/login",
		"http://8080.example.com:80/login":    "http://8080.example.com:80/login",
	} {
		for path, before := range map[string]string{"/": "", prefix + "/": prefix} {
			want := want
			if strings.HasPrefix(want, "/") {
				want = before + want
			}
			resp, _ := w.do(w.request("GET", path+"?to="+url.QueryEscape(to), nil))
			if got := resp.Header.Get("Location"); got != want || resp.Header.Get("Content-Location") != want {
				t.Errorf("%s: a redirect to %s leads to %s, want %s", path, to, got, want)
			}
		}
	}
	// A server may take the host of the URL out of X-Forwarded-Host.
	resp, _ := w.do(w.request("GET", prefix+"/?to="+url.QueryEscape(w.server.URL+"/login"), nil))
	if want := w.server.URL + prefix + "/login"; resp.Header.Get("Location") != want || resp.Header.Get("Content-Location") != want {
		t.Errorf("a redirect to the host of the URL leads to %s, want %s", resp.Header.Get("Location"), want)
	}
	// The host of the server itself leads to no other routes than before.
	w.set(func(sb *sandbox.Sandbox) { sb.Network.RequestHost = "example.com" })
	if _, body := w.do(w.request("GET", "/", nil)); !strings.HasPrefix(body, "http example.com forwarded "+w.label) {
		t.Errorf("with the server's own host: %q", body)
	}
	w.set(func(sb *sandbox.Sandbox) { sb.Network.RequestHost = "" })
	if _, body := w.do(w.request("GET", "/", nil)); !strings.HasPrefix(body, "http "+w.label+".box.test ") {
		t.Errorf("with no host any more: %q", body)
	}
}

// The port of a redirect may be left out when the scheme implies it, and be the server's own.
func TestRedirectPorts(t *testing.T) {
	w := newWorld(t, seesHost)
	for _, tc := range []struct {
		host, to string
		back     bool
	}{
		{"localhost", "http://localhost:80/a", true},
		{"localhost", "https://localhost:443/a", true},
		{"localhost", "https://localhost/a", true},
		{"localhost", "http://localhost:8080/a", true},
		{"localhost", "http://localhost:8081/a", false},
		{"localhost", "https://localhost:80/a", false},
		{"localhost:80", "http://localhost/a", true},
		{"localhost:80", "//localhost/a", true},
		{"localhost:80", "https://localhost/a", false},
		{"localhost:443", "https://LOCALHOST/a", true},
		{"localhost:443", "http://localhost/a", false},
		{"localhost:${PORT}", "http://localhost/a", false},
		{"[::1]", "http://[::1]:80/a", true},
	} {
		w.set(func(sb *sandbox.Sandbox) { sb.Network.RequestHost = tc.host })
		want := tc.to
		if tc.back {
			want = "/a"
		}
		resp, _ := w.do(w.request("GET", "/?to="+url.QueryEscape(tc.to), nil))
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("with the host %s, a redirect to %s leads to %s, want %s", tc.host, tc.to, got, want)
		}
	}
}

// secure serves a port of the sandbox by TLS, and returns the last server name that a handshake asked for.
func (w *world) secure(port uint16, handler http.Handler, configure ...func(*tls.Config)) (name func() string) {
	w.t.Helper()
	var last atomic.Value
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		last.Store(hello.ServerName)
		return nil, nil
	}}
	srv.StartTLS()
	for _, c := range configure {
		c(srv.TLS)
	}
	w.t.Cleanup(srv.Close)
	w.mu.Lock()
	w.ports[port] = srv.Listener.Addr().String()
	w.mu.Unlock()
	return func() string { name, _ := last.Load().(string); return name }
}

func TestHTTPSPorts(t *testing.T) {
	w := newWorld(t, seesHost)
	name := w.secure(8443, seesHost)
	setPorts := func(ports ...uint16) { w.set(func(sb *sandbox.Sandbox) { sb.Network.HTTPSPorts = ports }) }
	request := func() *http.Request {
		r := w.request("GET", "/", nil)
		r.Host = "8443--" + w.label + ".box.test"
		return r
	}
	if resp, body := w.do(request()); resp.StatusCode != 400 {
		t.Errorf("without the setting, a server of HTTPS answered %d %q", resp.StatusCode, body)
	}
	setPorts(8443)
	host := "8443--" + w.label + ".box.test"
	if _, body := w.do(request()); body != "https "+host+" forwarded "+host+" http" || name() != "" {
		t.Errorf("the server saw %q, and the server name %q", body, name())
	}
	path := "/s/8443--" + w.label + "/"
	if got := w.message(path, strings.Repeat("x", 20_000)); len(got) < 20_000 {
		t.Errorf("a WebSocket answered %d bytes", len(got))
	}
	resp, _ := w.do(w.request("GET", path+"?to="+url.QueryEscape("https://"+strings.TrimPrefix(w.server.URL, "http://")+"/a"), nil))
	if got := resp.Header.Get("Location"); got != path+"a" {
		t.Errorf("a redirect by HTTPS to the same host leads to %s", got)
	}
	// Other ports stay as they were.
	if _, body := w.do(w.request("GET", "/", nil)); !strings.HasPrefix(body, "http ") {
		t.Errorf("port 8080: %q", body)
	}
	// The host of the settings is the server name as well.
	w.set(func(sb *sandbox.Sandbox) { sb.Network.RequestHost = "app.test:${PORT}" })
	if _, body := w.do(request()); !strings.HasPrefix(body, "https app.test:8443 ") || name() != "app.test" {
		t.Errorf("the server saw %q, and the server name %q", body, name())
	}
	setPorts(8080)
	resp, body := w.do(w.request("GET", "/", nil))
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "does not speak HTTPS") || resp.Header.Get(proxy.ErrorHeader) != string(sandbox.PortClosed) {
		t.Errorf("a server of HTTP on a port of HTTPS: %d %q", resp.StatusCode, body)
	}
	setPorts()
	if _, body := w.do(w.request("GET", "/", nil)); !strings.HasPrefix(body, "http ") {
		t.Errorf("after the change: %q", body)
	}
}

// startsTLS reads the beginning of a connection, which is a handshake, and of nothing else.
func startsTLS(t *testing.T, c net.Conn) {
	b := make([]byte, 4096)
	if n, err := c.Read(b); err != nil || b[0] != 0x16 {
		t.Errorf("a connection begins with %q, %v, want a handshake", b[:n], err)
	}
}

// A hostile server that does not speak TLS gets no further.
func TestHostileHandshakes(t *testing.T) {
	w := newWorld(t, nil)
	w.set(func(sb *sandbox.Sandbox) { sb.Network.HTTPSPorts = []uint16{8080} })
	for name, answer := range map[string]string{
		"nothing": "", "an alert": "\x15\x03\x03\x00\x02\x02\x28", "half a record": "\x16\x03\x03\x40", "a record of zeros": "\x16\x03\x03\x00\x04\x02\x00\x00\x00",
	} {
		w.listen(8080, func(c net.Conn) {
			startsTLS(t, c)
			_, _ = io.WriteString(c, answer)
		})
		before := w.dials.Load()
		if resp, body := w.do(w.request("GET", "/", nil)); resp.StatusCode != http.StatusBadGateway || w.dials.Load() == before {
			t.Errorf("%s: %d %q after %d connections", name, resp.StatusCode, body, w.dials.Load()-before)
		}
	}
}

// A connection keeps the certificates of its server: those are bounded.
func TestLargeCertificates(t *testing.T) {
	w := newWorld(t, nil)
	w.secure(8443, seesHost, func(c *tls.Config) {
		for len(c.Certificates[0].Certificate) < 100 {
			c.Certificates[0].Certificate = append(c.Certificates[0].Certificate, c.Certificates[0].Certificate[0])
		}
	})
	w.set(func(sb *sandbox.Sandbox) { sb.Network.HTTPSPorts = []uint16{8443} })
	resp, body := w.do(w.request("GET", "/s/8443--"+w.label+"/", nil))
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "more than 32 KiB") {
		t.Errorf("a server with large certificates: %d %q", resp.StatusCode, body)
	}
}

// counted is a connection that says when it is closed.
type counted struct {
	net.Conn
	close func()
}

func (c counted) Close() error {
	c.close()
	return c.Conn.Close()
}

// A server that is silent in the handshake holds no connections of visitors who went.
func TestSilentHandshakes(t *testing.T) {
	const most = 2
	w := newWorld(t, nil, func(c *proxy.Config) { c.MaxConnections = most })
	w.set(func(sb *sandbox.Sandbox) { sb.Network.HTTPSPorts = []uint16{8080} })
	var open atomic.Int64
	w.wrap = func(c net.Conn) net.Conn {
		if n := open.Add(1); n > most {
			t.Errorf("%d connections are open", n)
		}
		return counted{c, sync.OnceFunc(func() { open.Add(-1) })}
	}
	begun := make(chan struct{})
	w.listen(8080, func(c net.Conn) {
		startsTLS(t, c)
		begun <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	for visits := 0; visits < 10; {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := w.server.Client().Do(w.request("GET", "/", nil).WithContext(ctx)); err == nil {
				_ = resp.Body.Close() // the visitors before are not gone yet
			}
		}()
		select {
		case <-begun:
			visits++
		case <-done:
		}
		cancel()
		<-done
	}
	for open.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// The idle connections of a sandbox are bounded over all its ports.
func TestIdleConnectionsOfManyPorts(t *testing.T) {
	w := newWorld(t, nil, func(c *proxy.Config) { c.MaxConnections = 2 })
	ports := []uint16{8441, 8442, 8443}
	for _, port := range ports {
		w.secure(port, seesHost)
	}
	w.set(func(sb *sandbox.Sandbox) { sb.Network.HTTPSPorts = ports })
	for range 100 {
		for _, port := range ports {
			w.do(w.request("GET", fmt.Sprintf("/s/%d--%s/", port, w.label), nil))
		}
	}
	if n := w.dials.Load(); n <= int64(len(ports)) {
		t.Errorf("each of %d ports keeps its connection", n)
	}
}
