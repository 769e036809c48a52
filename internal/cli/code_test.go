package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/modbox/modbox/internal/cli/base"
)

// interpreter is a server with the running sandbox "s". Code that begins with "loop" runs until it
// is interrupted, "fail" fails, "plot" shows an image, and other code prints itself.
type interpreter struct {
	mu          sync.Mutex
	calls       []string // guarded by mu
	interrupted chan struct{}
}

func newInterpreter() *interpreter { return &interpreter{interrupted: make(chan struct{}, 1)} }

func (i *interpreter) called() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.Join(i.calls, "\n")
}

func (i *interpreter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	i.mu.Lock()
	i.calls = append(i.calls, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/sandboxes")+" "+string(body))
	i.mu.Unlock()
	const sb = `{"id":"s","name":"s","state":"running"}`
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/code/stream"):
		i.run(w, r, body)
	case strings.HasSuffix(path, "/code"):
		_, _ = io.WriteString(w, `{"status":"error","stdout":"","stderr":"","results":[],"context_id":"python","error":{"name":"E","value":"v","traceback":[]}}`)
	case strings.HasSuffix(path, "/code/scan"):
		if strings.Contains(string(body), "clean") {
			_, _ = io.WriteString(w, `{"findings":[],"truncated":false}`)
			return
		}
		_, _ = io.WriteString(w, `{"findings":[{"line":2,"column":1,"rule":"import","severity":"high","reason":"imports os\u001b, which is not allowed"}],"truncated":true}`)
	case strings.HasSuffix(path, "/interrupt"):
		i.interrupted <- struct{}{}
	case r.Method == "GET" && strings.HasSuffix(path, "/contexts"):
		_, _ = io.WriteString(w, `{"items":[{"id":"python","language":"python","state":"idle","cwd":"/tmp","created_at":"2026-01-01T00:00:00Z","restarts":2}],"next_cursor":""}`)
	case strings.Contains(path, "/contexts/") && r.Method == "DELETE":
		w.WriteHeader(http.StatusNoContent)
	case strings.Contains(path, "/contexts/"):
		_, _ = io.WriteString(w, `{"id":"python"}`)
	default:
		_, _ = io.WriteString(w, sb)
	}
}

func (i *interpreter) run(w http.ResponseWriter, r *http.Request, body []byte) {
	var req struct{ Code string }
	_ = json.Unmarshal(body, &req)
	status := "ok"
	say := func(event string) {
		_, _ = io.WriteString(w, event+"\n")
		_ = http.NewResponseController(w).Flush()
	}
	say(`{"type":"started","context_id":"python"}`)
	switch {
	case strings.HasPrefix(req.Code, "loop"):
		say(`{"type":"stdout","text":"looping\n"}`)
		select {
		case <-i.interrupted:
		case <-r.Context().Done():
			return
		}
		status = "interrupted"
	case strings.HasPrefix(req.Code, "fail"):
		say(`{"type":"error","error":{"name":"E","value":"v","traceback":["\u001b[31mTraceback\u001b[0m","E: v"]}}`)
		status = "error"
	case strings.HasPrefix(req.Code, "plot"):
		say(`{"type":"result","result":{"main":true,"data":{"text/plain":"<Figure>","image/png":"iVBORw=="}}}`)
	default:
		text, _ := json.Marshal(req.Code)
		say(fmt.Sprintf(`{"type":"stdout","text":%s}`, text))
	}
	say(fmt.Sprintf(`{"type":"end","status":%q,"duration_ms":1}`, status))
}

func TestCode(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.py")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		stdin string
		args  []string
		want  result
	}{
		"flag":  {"", []string{"-c", "x"}, result{0, "x", ""}},
		"file":  {"", []string{file}, result{0, "from a file", ""}},
		"stdin": {"from stdin", nil, result{0, "from stdin", ""}},
		"fails": {"", []string{"-c", "fail"}, result{1, "", "Traceback\nE: v\n"}},
		"image": {"", []string{"-c", "plot"}, result{0, "<Figure>\n", ""}},
		"saved": {"", []string{"-c", "plot", "--save-dir", dir}, result{0, filepath.Join(dir, "image-1.png") + "\n", ""}},
	} {
		if got := invoke(t, newInterpreter(), tt.stdin, append([]string{"code", "s"}, tt.args...)...); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "image-1.png")); err != nil || string(b) != "\x89PNG" {
		t.Errorf("image %q, %v", b, err)
	}
	if got := invoke(t, newInterpreter(), "", "code", "s", "-c", "x", "--json"); got.code != 1 || !strings.Contains(got.stdout, `"name": "E"`) {
		t.Errorf("--json of code that fails: %+v", got)
	}
	s := newInterpreter()
	invoke(t, s, "", "code", "s", "-c", "x", "--context", "c1", "--timeout", "2s")
	if calls := s.called(); !strings.Contains(calls, `{"code":"x","context_id":"c1","timeout_seconds":2}`) {
		t.Errorf("requests %s", calls)
	}
	for _, args := range [][]string{{"code", "s", file, "-c", "x"}, {"code", "s", "-c", "x", "--language", "r", "--context", "c"}, {"repl", "s"}} {
		if got := invoke(t, newInterpreter(), "", args...); got.code != 2 {
			t.Errorf("%v: %+v, want a usage error", args, got)
		}
	}
}

func TestContexts(t *testing.T) {
	s := newInterpreter()
	if got := invoke(t, s, "", "contexts", "ls", "s"); got.code != 0 || !strings.Contains(got.stdout, "python") || !strings.Contains(got.stdout, "RESTARTS") {
		t.Errorf("contexts ls: %+v", got)
	}
	for use, call := range map[string]string{"rm": "DELETE /s/contexts/c1 ", "interrupt": "POST /s/contexts/c1/interrupt ", "restart": "POST /s/contexts/c1/restart "} {
		if got := invoke(t, s, "", "contexts", use, "s", "c1"); got.code != 0 || !strings.Contains(s.called(), call) {
			t.Errorf("contexts %s: %+v, requests %s", use, got, s.called())
		}
	}
}

func TestRepl(t *testing.T) {
	s := newInterpreter()
	srv := httptest.NewServer(s)
	defer srv.Close()
	keyboard, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	defer terminal.Close()
	dir := t.TempDir()
	env := &base.Env{Stdin: terminal, Stdout: terminal, Stderr: terminal, Environ: []string{
		"MODBOX_URL=" + srv.URL, "MODBOX_API_TOKEN=mbx_test", "HOME=" + t.TempDir(), "MODBOX_STATE_DIR=" + t.TempDir(),
	}}
	ended := make(chan int, 1)
	go func() { ended <- execute(t.Context(), env, []string{"repl", "--save-dir", dir}) }()
	if err := keyboard.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	expect := func(want string) {
		t.Helper()
		for buf := make([]byte, 4096); !strings.Contains(seen.String(), want); {
			n, err := keyboard.Read(buf)
			if err != nil {
				t.Fatalf("terminal showed %q, then %v; want %q", seen.String(), err, want)
			}
			seen.Write(buf[:n])
		}
		_, rest, _ := strings.Cut(seen.String(), want)
		seen.Reset()
		seen.WriteString(rest)
	}
	typed := func(keys string) {
		t.Helper()
		if _, err := io.WriteString(keyboard, keys); err != nil {
			t.Fatal(err)
		}
	}
	expect("python> ")
	typed("one\r")
	expect("\r\none\r\n")
	expect("python> ")
	typed("for x in y:\r")
	expect("...... ")
	typed("  two\r\r")
	expect("for x in y:\r\n  two\r\n\r\n")
	expect("python> ")
	typed("dropped\x03") // Ctrl-C drops the line
	expect("^C")
	expect("python> ")
	typed("loop\r")
	expect("looping")
	typed("\x03") // Ctrl-C interrupts the code, and not the session
	expect("The code ended: interrupted")
	expect("python> ")
	typed("plot\r")
	expect(filepath.Join(dir, "image-1.png"))
	expect("python> ")
	typed("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\r") // the history has the first line
	expect("\r\none\r\n")
	expect("python> ")
	typed("\x04")
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("Ctrl-D did not end the session")
	}
	calls := s.called()
	if strings.Contains(calls, "dropped") || !strings.Contains(calls, `"ttl_seconds":86400`) || !strings.HasSuffix(calls, "DELETE /s ") {
		t.Errorf("requests %s\nwant a new sandbox that is destroyed at the end, and no dropped line", calls)
	}
}

func TestScan(t *testing.T) {
	s := newInterpreter()
	got := invoke(t, s, "import os", "scan", "s", "--language", "python", "--allow-import", "json,re")
	if got.code != 1 || !strings.HasPrefix(got.stdout, "2:1: import (high): imports os") || strings.Contains(got.stdout, "\x1b") || got.stderr != "There are more findings.\n" {
		t.Errorf("scan with a finding = %+v", got)
	}
	if calls := s.called(); !strings.Contains(calls, `{"code":"import os","language":"python","allowed_imports":["json","re"]}`) {
		t.Errorf("requests %s", calls)
	}
	if got := invoke(t, newInterpreter(), "", "scan", "s", "-c", "clean"); got != (result{}) {
		t.Errorf("scan without findings = %+v, want nothing and code 0", got)
	}
	if got := invoke(t, newInterpreter(), "", "scan", "s", "-c", "x", "--json"); got.code != 1 || !strings.Contains(got.stdout, `"rule": "import"`) {
		t.Errorf("scan --json = %+v", got)
	}
}
