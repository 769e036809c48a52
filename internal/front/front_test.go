package front_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/internal/front"
)

// start serves requests as the proxy of a server passes them on: with the header that says so.
func start(t *testing.T, cfg front.Config) string {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Files = t.TempDir()
	if err := os.MkdirAll(filepath.Join(cfg.Files, "terminal"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Files, "terminal", "index.html"), []byte("the terminal"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := front.New(cfg)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Inside") == "" {
			r.Header.Set("X-Forwarded-Proto", "https")
			r.Header.Set("X-Forwarded-Prefix", "/s/label")
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// get returns the status and the body of a request.
func get(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

func TestOnlyTheURLLeadsIn(t *testing.T) {
	url := start(t, front.Config{Shell: []string{"/bin/sh"}, CDP: "127.0.0.1:1", VNC: "/none"})
	for _, path := range []string{"/cdp/json/version", "/vnc/websockify", "/terminal/socket?id=abcdefgh", "/mcp/shell", "/mcp/browser"} {
		if code, _ := get(t, url+path, "X-Inside", "1"); code != http.StatusForbidden {
			t.Errorf("%s from inside: %d, want 403", path, code)
		}
	}
	if code, _ := get(t, url+"/"); code != http.StatusServiceUnavailable {
		t.Errorf("/ without its programs: %d, want 503", code)
	}
	if code, _ := get(t, url+"/cdp/json/version"); code != http.StatusServiceUnavailable {
		t.Errorf("/cdp/ without a browser: %d, want 503", code)
	}
}

func TestKey(t *testing.T) {
	url := start(t, front.Config{Shell: []string{"/bin/sh"}, Key: "secret"})
	for _, path := range []string{"/terminal/", "/terminal/socket?id=abcdefgh", "/mcp/shell"} {
		if code, _ := get(t, url+path, "Authorization", "Bearer other"); code != http.StatusUnauthorized {
			t.Errorf("%s with a wrong key: %d, want 401", path, code)
		}
		if code, _ := get(t, url+path, "Authorization", "Bearer secret", "Origin", "https://example.com"); code != http.StatusForbidden {
			t.Errorf("%s from a page of another site: %d, want 403", path, code)
		}
	}
	if code, body := get(t, url+"/terminal/", "Authorization", "Basic dXNlcjpzZWNyZXQ="); code != http.StatusOK || body != "the terminal" {
		t.Errorf("/terminal/ with the password: %d %q", code, body)
	}
	if code, _ := get(t, url+"/"); code != http.StatusOK {
		t.Errorf("/ without the key: %d, want 200", code)
	}
}

func TestDevToolsAddresses(t *testing.T) {
	chromium := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_ = json.NewEncoder(w).Encode(map[string]string{"host": r.Host, "path": r.URL.Path, "socket": "ws://localhost/devtools/browser/1"})
	}))
	defer chromium.Close()
	url := start(t, front.Config{Shell: []string{"/bin/sh"}, CDP: chromium.Listener.Addr().String()})
	_, body := get(t, url+"/cdp/json/version")
	var got map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	if want := "wss://" + strings.TrimPrefix(url, "http://") + "/s/label/cdp/devtools/browser/1"; got["socket"] != want || got["host"] != "localhost" || got["path"] != "/json/version" {
		t.Errorf("answer = %v, want the address %s", got, want)
	}
}

func TestScreen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "vnc.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("RFB 003.008\n"))
			buf := make([]byte, 4)
			n, _ := c.Read(buf)
			_, _ = c.Write(buf[:n])
			_ = c.Close()
		}
	}()
	url := start(t, front.Config{Shell: []string{"/bin/sh"}, VNC: socket})
	ws := dial(t, url+"/vnc/websockify")
	if err := ws.Write(t.Context(), websocket.MessageBinary, []byte("ping")); err != nil {
		t.Fatal(err)
	}
	read(t, ws, "RFB 003.008\nping")
}

func dial(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// read reads until the text comes, and returns all that came.
func read(t *testing.T, ws *websocket.Conn, text string) string {
	t.Helper()
	var got strings.Builder
	for !strings.Contains(got.String(), text) {
		_, data, err := ws.Read(t.Context())
		if err != nil {
			t.Fatalf("read %q, want %q: %v", got.String(), text, err)
		}
		got.Write(data)
	}
	return got.String()
}

func TestTerminal(t *testing.T) {
	url := start(t, front.Config{Shell: []string{"/bin/sh"}}) + "/terminal/socket?id=terminal-1"
	say := func(ws *websocket.Conn, kind websocket.MessageType, text string) {
		t.Helper()
		if err := ws.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	first := dial(t, url)
	say(first, websocket.MessageText, `{"cols": 100, "rows": 30}`)
	say(first, websocket.MessageBinary, "n=41; stty size; echo n is $((n+1))\n")
	if out := read(t, first, "n is 42"); !strings.Contains(out, "30 100") { // both can come in one message
		t.Errorf("the terminal shows %q, which does not have its size, 30 100", out)
	}

	second := dial(t, url) // in the place of the first, with what that saw
	read(t, second, "n is 42")
	for {
		if _, _, err := first.Read(t.Context()); err != nil {
			if websocket.CloseStatus(err) != 4001 {
				t.Errorf("the first viewer ends with %v, want status 4001", err)
			}
			break
		}
	}
	say(second, websocket.MessageBinary, "echo still $n; exit\n")
	read(t, second, "still 41")
	for {
		if _, _, err := second.Read(t.Context()); err != nil {
			if websocket.CloseStatus(err) != 4000 {
				t.Errorf("after exit the viewer ends with %v, want status 4000", err)
			}
			break
		}
	}
	third := dial(t, url) // another shell
	say(third, websocket.MessageBinary, "echo new[$n]\n")
	read(t, third, "new[]")
	if code, _ := get(t, strings.Replace(url, "terminal-1", "../x", 1)); code != http.StatusBadRequest {
		t.Errorf("a wrong id: %d, want 400", code)
	}
}

func TestManyTerminals(t *testing.T) {
	url := start(t, front.Config{Shell: []string{"/bin/sh"}}) + "/terminal/socket?id=terminal-"
	for i := range 20 {
		ws := dial(t, url+string(rune('a'+i)))
		if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Fatalf("terminal %d: %v", i, err)
		}
	}
}

// tools connects to an MCP server, and returns what calls its tools.
func tools(t *testing.T, url string) (call func(name string, arguments map[string]any) (text string, failed bool)) {
	t.Helper()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return func(name string, arguments map[string]any) (string, bool) {
		t.Helper()
		res, err := s.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: name, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, c := range res.Content {
			b.WriteString(c.(*sdk.TextContent).Text)
		}
		return b.String(), res.IsError
	}
}

// TestCloseTab has a browser that lists a tab for some time after it has answered the request to close it.
func TestCloseTab(t *testing.T) {
	var lists atomic.Int32
	chromium := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/json/close/A1":
			_, _ = io.WriteString(w, "Target is closing")
		case r.URL.Path == "/json/list" && lists.Add(1) < 3:
			_, _ = io.WriteString(w, `[{"id": "A1", "type": "page"}, {"id": "B2", "type": "page"}]`)
		default:
			_, _ = io.WriteString(w, `[{"id": "B2", "type": "page"}]`)
		}
	}))
	defer chromium.Close()
	call := tools(t, start(t, front.Config{Shell: []string{"/bin/sh"}, CDP: chromium.Listener.Addr().String()})+"/mcp/browser")
	if got, failed := call("browser_close_tab", map[string]any{"tab": "A1"}); failed || got != "closed" {
		t.Errorf("browser_close_tab = %q", got)
	}
	if n := lists.Load(); n != 3 {
		t.Errorf("the tab counts as closed after %d lists, want 3", n)
	}
}

func TestShellTools(t *testing.T) {
	call := tools(t, start(t, front.Config{Shell: []string{"/bin/sh"}})+"/mcp/shell")
	dir := t.TempDir()
	if got, _ := call("exec", map[string]any{"command": "cat; pwd >&2; kill -9 $$", "stdin": "in", "cwd": dir}); got != "exit code: 137\nstdout:\nin\nstderr:\n"+dir+"\n" {
		t.Errorf("exec = %q", got)
	}
	if got, _ := call("exec", map[string]any{"command": "sleep 5 & echo left"}); got != "exit code: 0\nstdout:\nleft\n" {
		t.Errorf("exec with a process that goes on = %q", got)
	}
	if got, _ := call("exec", map[string]any{"command": "sleep 1000", "timeout_seconds": 1}); !strings.HasPrefix(got, "the command was killed after 1s\nexit code: 137") {
		t.Errorf("exec beyond its time = %q", got)
	}
	if got, _ := call("exec", map[string]any{"command": "seq 100000"}); len(got) > 34<<10 || !strings.Contains(got, "bytes left out") || !strings.HasSuffix(got, "100000\n") {
		t.Errorf("exec with much output = %d bytes", len(got))
	}
	if got, failed := call("exec", map[string]any{"command": "true", "timeout_seconds": 3601}); !failed || !strings.Contains(got, "timeout_seconds") {
		t.Errorf("exec with a long timeout = %q", got)
	}
	path := filepath.Join(dir, "new", "a.txt")
	long := strings.Repeat("€", 20_000)
	if got, failed := call("write_file", map[string]any{"path": path, "content": long}); failed {
		t.Fatalf("write_file = %q", got)
	}
	first, _ := call("read_file", map[string]any{"path": path})
	if want := "[there may be more: go on with offset 32766]"; !strings.HasSuffix(first, want) {
		t.Fatalf("read_file ends with %q, want %q", first[max(0, len(first)-60):], want)
	}
	if rest, _ := call("read_file", map[string]any{"path": path, "offset": 32766}); rest != long[32766:] {
		t.Errorf("read_file returned %d bytes of the rest, want %d", len(rest), len(long)-32766)
	}
	for _, wrong := range []string{dir, "/dev/zero", filepath.Join(dir, "none")} {
		if got, failed := call("read_file", map[string]any{"path": wrong}); !failed {
			t.Errorf("read_file of %s = %q, want an error", wrong, got)
		}
	}
}
