package proxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// world is a proxy over one sandbox whose ports are listeners of the test.
type world struct {
	t      *testing.T
	server *httptest.Server // the proxy, with the server's own routes behind it
	label  string

	mu    sync.Mutex
	sb    sandbox.Sandbox   // guarded by mu
	ports map[uint16]string // guarded by mu
	reads int               // of what is on the disk; guarded by mu
	dials atomic.Int64
	// wrap may replace a new connection to a port.
	wrap  func(net.Conn) net.Conn
	links *preview.Links
	// published ends, with revoke, when ports are not what they were.
	published context.Context
	revoke    context.CancelFunc
	// gone is whether the maker of tokens may not use the sandbox any more, changed is
	// closed when that changes, expires is the end of the API token.
	gone    bool          // guarded by mu
	changed chan struct{} // guarded by mu
	expires time.Time
}

// maker is the owner of the API token, and the maker of links.
var maker = preview.Maker{User: "u", Token: "t"}

func (w *world) StillPermits(_ context.Context, user sandbox.UserID, token string, ws sandbox.WorkspaceID, p account.Permission) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || (preview.Maker{User: user, Token: token}) != maker || ws != userWorkspace || p != account.SandboxesWrite {
		return sandbox.Errorf(sandbox.Unauthenticated, "the token was revoked")
	}
	return nil
}

func (w *world) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// changeTokens changes tokens as the authenticator does.
func (w *world) changeTokens(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) ByLabel(label string) (sandbox.Sandbox, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sb, label == w.sb.HostLabel && !w.sb.State.Ended()
}

func (w *world) EndedByLabel(_ context.Context, label string) (sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if label != w.sb.HostLabel {
		return sandbox.Sandbox{}, sandbox.Errorf(sandbox.NotFound, "no sandbox %s", label)
	}
	return w.sb, nil
}

func (w *world) ByPortLabel(label string) (sandbox.Sandbox, sandbox.PublishedPort, context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.sb.Published {
		if p.Label == label {
			return w.sb, p, w.published, nil
		}
	}
	return sandbox.Sandbox{}, sandbox.PublishedPort{}, nil, sandbox.Errorf(sandbox.NotFound, "no port %s", label)
}

// apiToken is the API token that may use the sandbox; foreignToken of another workspace.
const (
	apiToken      = "mbx_right"
	foreignToken  = "mbx_foreign"
	userWorkspace = sandbox.WorkspaceID("w")
)

func (w *world) Permits(_ *http.Request, token string, ws sandbox.WorkspaceID, p account.Permission) (auth.Identity, error) {
	switch {
	case token == apiToken && ws == userWorkspace && p == account.SandboxesWrite:
		return auth.Identity{User: maker.User, TokenID: maker.Token, Expires: w.expires}, nil
	case token == foreignToken:
		return auth.Identity{}, sandbox.Errorf(sandbox.Forbidden, "not yours")
	}
	return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "no token")
}

func (w *world) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	w.mu.Lock()
	addr := w.ports[port]
	w.mu.Unlock()
	if id != w.sb.ID || addr == "" {
		return nil, sandbox.Errorf(sandbox.PortClosed, "port %d is closed", port)
	}
	w.dials.Add(1)
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil && w.wrap != nil {
		c = w.wrap(c)
	}
	return c, err
}

func (w *world) set(change func(*sandbox.Sandbox)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.sb)
}

func newWorld(t *testing.T, guest http.Handler, configure ...func(*proxy.Config)) *world {
	t.Helper()
	return newWorldWith(t, guest, nil, configure...)
}

// newWorldWith is newWorld with management routes.
func newWorldWith(t *testing.T, guest http.Handler, routes proxy.Routes, configure ...func(*proxy.Config)) *world {
	t.Helper()
	w := &world{t: t, ports: map[uint16]string{}, changed: make(chan struct{})}
	w.sb = sandbox.Sandbox{ID: sandbox.NewID(), Workspace: userWorkspace, Name: "demo", HostLabel: sandbox.HostLabel("demo"), State: sandbox.Running}
	w.published, w.revoke = context.WithCancel(t.Context())
	w.links = links(t)
	w.label = w.sb.HostLabel
	if guest != nil {
		s := httptest.NewServer(guest)
		t.Cleanup(s.Close)
		w.ports[8080] = s.Listener.Addr().String()
	}
	cfg := proxy.Config{URLs: urls(t, "http://example.com", "box.test")}
	for _, c := range configure {
		c(&cfg)
	}
	p, err := proxy.New(cfg, proxy.Deps{Sandboxes: w, Ports: w, Dialer: w, Routes: routes, Links: w.links, Tokens: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the server's own") })
	w.server = httptest.NewServer(p.Wrap(own))
	t.Cleanup(w.server.Close)
	t.Cleanup(p.Close)
	return w
}

// links returns signed links with a key of their own.
func links(t testing.TB) *preview.Links {
	t.Helper()
	keys, err := secret.Open(filepath.Join(t.TempDir(), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	return preview.New(keys)
}

// listen serves a port of the sandbox with raw bytes.
func (w *world) listen(port uint16, serve func(net.Conn)) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	w.mu.Lock()
	w.ports[port] = l.Addr().String()
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// request makes a request in host form; in path form when path begins with /s/.
func (w *world) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.HasPrefix(path, "/s/") {
		r.Host = w.label + ".box.test"
	}
	return r
}

func (w *world) do(r *http.Request) (*http.Response, string) {
	w.t.Helper()
	client := &http.Client{Transport: w.server.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

// echo answers what it was asked.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Set-Cookie", "a=b; Domain=box.test; Path=/")
	w.Header().Set("Clear-Site-Data", `"*"`)
	w.Header().Set("Content-Security-Policy", "default-src 'self'")
	_ = json.NewEncoder(w).Encode(map[string]any{"host": r.Host, "uri": r.RequestURI, "header": r.Header})
})

type echoed struct {
	Host   string      `json:"host"`
	URI    string      `json:"uri"`
	Header http.Header `json:"header"`
}

func parseEcho(t *testing.T, body string) echoed {
	t.Helper()
	var e echoed
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("answer %q: %v", body, err)
	}
	return e
}

func TestOwnRequestsStayOwn(t *testing.T) {
	w := newWorld(t, echo)
	for _, path := range []string{"/", "/v1/sandboxes", "/s"} {
		r := w.request("GET", path, nil)
		r.Host = "example.com"
		if _, body := w.do(r); body != "the server's own" {
			t.Errorf("GET %s = %q", path, body)
		}
	}
}

func TestHostForm(t *testing.T) {
	w := newWorld(t, echo)
	r := w.request("GET", "/a%2Fb/c?x=1;y=%zz", nil)
	r.Header.Set("Authorization", "Bearer mbx_secret")
	r.Header.Set("Cookie", "session=1")
	r.Header.Set("X-Workspace-Id", "w")
	r.Header.Set("X-Forwarded-For", "6.6.6.6")
	r.Header.Set("X-Forwarded-Prefix", "/evil")
	r.Header.Set("X-Real-Ip", "6.6.6.6")
	r.Header.Set("Connection", "X-Hop")
	r.Header.Set("X-Hop", "1")
	resp, body := w.do(r)
	e := parseEcho(t, body)
	if e.Host != r.Host || e.URI != "/a%2Fb/c?x=1;y=%zz" {
		t.Errorf("the sandbox saw host %q, URI %q", e.Host, e.URI)
	}
	for _, name := range []string{"Authorization", "X-Workspace-Id", "X-Forwarded-Prefix", "X-Real-Ip", "X-Hop"} {
		if v := e.Header.Get(name); v != "" {
			t.Errorf("the sandbox saw %s: %s", name, v)
		}
	}
	if got := e.Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
		t.Errorf("X-Forwarded-For = %q", got)
	}
	if e.Header.Get("X-Forwarded-Host") != r.Host || e.Header.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("forwarded host %q, proto %q", e.Header.Get("X-Forwarded-Host"), e.Header.Get("X-Forwarded-Proto"))
	}
	if e.Header.Get("Cookie") != "session=1" {
		t.Errorf("the sandbox's own cookies did not arrive")
	}
	if got := resp.Header.Get("Set-Cookie"); got != "a=b; Path=/" {
		t.Errorf("Set-Cookie = %q, want it without Domain", got)
	}
	if got := resp.Header.Get("Referrer-Policy"); got != "same-origin" {
		t.Errorf("Referrer-Policy = %q", got)
	}
	if got := resp.Header.Values("Content-Security-Policy"); len(got) != 1 {
		t.Errorf("Content-Security-Policy = %q", got)
	}
}

func TestOtherCredentialsPass(t *testing.T) {
	w := newWorld(t, echo)
	for _, path := range []string{"/", "/s/" + w.label + "/"} {
		r := w.request("GET", path, nil)
		r.Header.Set("Authorization", "Bearer sandbox-key")
		_, body := w.do(r)
		if got := parseEcho(t, body).Header.Get("Authorization"); got != "Bearer sandbox-key" {
			t.Errorf("%s: Authorization = %q", path, got)
		}
	}
}

func TestPathForm(t *testing.T) {
	w := newWorld(t, echo)
	prefix := "/s/" + w.label
	r := w.request("GET", prefix+"/a%2Fb/c?x=1", nil)
	r.Header.Set("Authorization", "bearer  mbx_secret")
	r.Header.Set("Cookie", "console=1")
	resp, body := w.do(r)
	e := parseEcho(t, body)
	if e.URI != "/a%2Fb/c?x=1" || e.Header.Get("X-Forwarded-Prefix") != prefix {
		t.Errorf("the sandbox saw URI %q, prefix %q", e.URI, e.Header.Get("X-Forwarded-Prefix"))
	}
	if e.Header.Get("Authorization") != "" || e.Header.Get("Cookie") != "" {
		t.Errorf("the sandbox saw credentials: %v", e.Header)
	}
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data"} {
		if v := resp.Header.Get(name); v != "" {
			t.Errorf("%s: %s came through", name, v)
		}
	}
	if got := resp.Header.Values("Content-Security-Policy"); len(got) != 2 || !strings.HasPrefix(got[0], "sandbox ") || strings.Contains(got[0], "same-origin") {
		t.Errorf("Content-Security-Policy = %q", got)
	}
	if resp, _ := w.do(w.request("GET", prefix, nil)); resp.StatusCode != 307 || resp.Header.Get("Location") != prefix+"/" {
		t.Errorf("GET %s = %d to %q", prefix, resp.StatusCode, resp.Header.Get("Location"))
	}
	if _, body := w.do(w.request("POST", prefix, nil)); parseEcho(t, body).URI != "/" {
		t.Errorf("POST %s: %s", prefix, body)
	}
}

func TestBrowsersAreSentToLocalhost(t *testing.T) {
	w := newWorld(t, echo, func(c *proxy.Config) { c.URLs = urls(t, "http://127.0.0.1:7070", "") })
	prefix := "/s/" + w.label
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	host := w.label + ".localhost:" + port
	navigate := func(method, path string) *http.Request {
		r := w.request(method, path, nil)
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		return r
	}
	for path, want := range map[string]string{
		prefix:                          "http://" + host + "/",
		prefix + "/a%2Fb//c?x=1&y=%20z": "http://" + host + "/a%2Fb//c?x=1&y=%20z",
	} {
		resp, _ := w.do(navigate("GET", path))
		if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusTemporaryRedirect || got != want || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("a browser's GET %s = %d to %q, want %q", path, resp.StatusCode, got, want)
		}
	}
	elsewhere := navigate("GET", prefix+"/")
	elsewhere.Host = "modbox.example.com"
	upgrade := navigate("GET", prefix+"/")
	upgrade.Header.Set("Upgrade", "other")
	for name, r := range map[string]*http.Request{
		"no browser":   w.request("GET", prefix+"/", nil),
		"a form":       navigate("POST", prefix+"/"),
		"another host": elsewhere,
		"an upgrade":   upgrade,
	} {
		if resp, _ := w.do(r); resp.Header.Get("Location") != "" {
			t.Errorf("%s was sent to %q", name, resp.Header.Get("Location"))
		}
	}
	r := w.request("GET", "/style.css", nil)
	r.Host = host
	r.Header.Set("Cookie", "mine=1")
	resp, body := w.do(r)
	if e := parseEcho(t, body); e.URI != "/style.css" || e.Host != host || e.Header.Get("Cookie") != "mine=1" || e.Header.Get("X-Forwarded-Prefix") != "" {
		t.Errorf("the sandbox saw %+v", e)
	}
	if got := resp.Header.Get("Set-Cookie"); got != "a=b; Path=/" {
		t.Errorf("Set-Cookie = %q, want the cookie without its domain", got)
	}
	if got := resp.Header.Values("Content-Security-Policy"); len(got) != 1 {
		t.Errorf("Content-Security-Policy = %q, want the sandbox's only", got)
	}
}

func TestRedirectsStayInThePath(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(302)
	}))
	host := strings.TrimPrefix(w.server.URL, "http://")
	prefix := "/s/" + w.label
	for to, want := range map[string]string{
		"/login?x=1":            prefix + "/login?x=1",
		"http://" + host + "/a": "http://" + host + prefix + "/a",
		prefix + "/done":        prefix + "/done",
		"next":                  "next",
		"https://elsewhere/a":   "https://elsewhere/a",
		"//elsewhere/a":         "//elsewhere/a",
	} {
		resp, _ := w.do(w.request("GET", prefix+"/?to="+url.QueryEscape(to), nil))
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("redirect to %q became %q, want %q", to, got, want)
		}
	}
}

func TestPortForm(t *testing.T) {
	w := newWorld(t, echo)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "three thousand ", r.RequestURI) }))
	t.Cleanup(other.Close)
	w.ports[3000] = other.Listener.Addr().String()
	r := w.request("GET", "/x", nil)
	r.Host = "3000--" + w.label + ".box.test"
	if _, body := w.do(r); body != "three thousand /x" {
		t.Errorf("host form: %q", body)
	}
	if _, body := w.do(w.request("GET", "/s/3000--"+w.label+"/x", nil)); body != "three thousand /x" {
		t.Errorf("path form: %q", body)
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t, nil)
	ended := func(sb *sandbox.Sandbox) {
		sb.State, sb.Cause = sandbox.Failed, &sandbox.Cause{Code: sandbox.CauseOOM, Message: "it used more than 512Mi"}
	}
	for _, tc := range []struct {
		name       string
		change     func(*sandbox.Sandbox)
		host       string
		status     int
		code, says string
	}{
		{"unknown", nil, "nobody.box.test", 404, "not_found", "no sandbox"},
		{"malformed", nil, "a.b.box.test", 404, "not_found", "not the URL"},
		{"starting", func(sb *sandbox.Sandbox) { sb.State = sandbox.Provisioning }, "", 503, "not_running", "starting"},
		{"ended", ended, "", 410, "ended", "more than 512Mi"},
		{"destroying", func(sb *sandbox.Sandbox) { sb.State, sb.Cause = sandbox.Destroying, nil }, "", 410, "ended", "demo"},
		{"closed", func(sb *sandbox.Sandbox) { sb.State = sandbox.Running }, "", 502, "port_closed", "port 8080"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				w.set(tc.change)
			}
			r := w.request("GET", "/", nil)
			if tc.host != "" {
				r.Host = tc.host
			}
			resp, body := w.do(r)
			var e struct{ Detail, Code string }
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			if resp.StatusCode != tc.status || e.Code != tc.code || !strings.Contains(e.Detail, tc.says) || resp.Header.Get(proxy.ErrorHeader) != tc.code {
				t.Errorf("answer %d %s", resp.StatusCode, body)
			}
			if retry := resp.Header.Get("Retry-After"); (retry != "") != (tc.status == 503) {
				t.Errorf("Retry-After = %q", retry)
			}
			r.Header.Set("Accept", "text/html,*/*")
			resp, body = w.do(r)
			if resp.StatusCode != tc.status || !strings.HasPrefix(body, "<!doctype html>") || !strings.Contains(body, tc.says) {
				t.Errorf("HTML answer %d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestBodiesBothWays(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}))
	payload := make([]byte, 32<<20)
	_, _ = rand.Read(payload)
	resp, body := w.do(w.request("POST", "/", bytes.NewReader(payload)))
	if sha256.Sum256([]byte(body)) != sha256.Sum256(payload) {
		t.Errorf("status %d, %d of %d bytes came back, or others", resp.StatusCode, len(body), len(payload))
	}
}

func TestStreamsAsItComes(t *testing.T) {
	next := make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			fmt.Fprintln(w, "tick")
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	resp, err := w.server.Client().Do(w.request("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 3 {
		// A line that waited for the next one would never come.
		line := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != "tick\n" {
			t.Fatalf("read %q, %v", line, err)
		}
		next <- struct{}{}
	}
}

func TestKeepsConnections(t *testing.T) {
	w := newWorld(t, echo)
	for range 20 {
		w.do(w.request("GET", "/", nil))
	}
	if n := w.dials.Load(); n != 1 {
		t.Errorf("%d connections for 20 requests one after another, want 1", n)
	}
}

func TestWebSocket(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if c.Write(r.Context(), kind, append([]byte(r.Host+" "), b...)) != nil {
				return
			}
		}
	}))
	for name, path := range map[string]string{"host": "/", "path": "/s/" + w.label + "/ws"} {
		t.Run(name, func(t *testing.T) {
			opts := &websocket.DialOptions{HTTPClient: w.server.Client()}
			want := strings.TrimPrefix(w.server.URL, "http://")
			if name == "host" {
				opts.Host = w.label + ".box.test"
				want = opts.Host
			}
			c, resp, err := websocket.Dial(t.Context(), w.server.URL+path, opts)
			if err != nil {
				t.Fatalf("dial: %v, %+v", err, resp)
			}
			defer c.CloseNow()
			for _, msg := range []string{"hello", strings.Repeat("x", 20_000)} {
				if err := c.Write(t.Context(), websocket.MessageText, []byte(msg)); err != nil {
					t.Fatal(err)
				}
				if _, b, err := c.Read(t.Context()); err != nil || string(b) != want+" "+msg {
					t.Fatalf("read %d bytes, %v", len(b), err)
				}
			}
			if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// TestForwardedClient checks that a sandbox sees the client that a trusted proxy in front names,
// and no other.
func TestForwardedClient(t *testing.T) {
	w := newWorld(t, echo)
	front := w.server.Config.Handler
	for name, c := range map[string]struct {
		trusted           []netip.Prefix
		wantFor, wantName string
	}{
		"trusted": {[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "203.0.113.7", "https"},
		"nobody":  {nil, "127.0.0.1", "http"},
	} {
		t.Run(name, func(t *testing.T) {
			w.server = httptest.NewServer(auth.Forwarded(c.trusted, front))
			defer w.server.Close()
			r := w.request("GET", "/", nil)
			r.Header.Set("X-Forwarded-For", "6.6.6.6, 203.0.113.7")
			r.Header.Set("X-Forwarded-Proto", "https")
			_, body := w.do(r)
			h := parseEcho(t, body).Header
			if got := h.Values("X-Forwarded-For"); len(got) != 1 || got[0] != c.wantFor {
				t.Errorf("X-Forwarded-For = %q, want %s", got, c.wantFor)
			}
			if got := h.Values("X-Forwarded-Proto"); len(got) != 1 || got[0] != c.wantName {
				t.Errorf("X-Forwarded-Proto = %q, want %s", got, c.wantName)
			}
		})
	}
}
