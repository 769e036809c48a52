package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/creack/pty"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/sandbox"
)

// host is a server whose one sandbox is this machine: commands really run, files are those below dir.
type host struct {
	dir     string
	create  wire.Sandbox
	started chan struct{} // closed when a command has started; may be nil

	mu    sync.Mutex
	calls []string // guarded by mu
}

func (h *host) called() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes"), "/")
	_, action, _ = strings.Cut(action, "/")
	h.mu.Lock()
	h.calls = append(h.calls, strings.TrimSpace(r.Method+" "+action))
	h.mu.Unlock()
	local := filepath.Join(h.dir, r.URL.Query().Get("path"))
	switch r.Method + " " + action {
	case "POST ", "DELETE ":
		_ = json.NewEncoder(w).Encode(h.create)
	case "GET exec/attach":
		h.attach(w, r)
	case "GET files/stat":
		info, err := os.Stat(local)
		if err != nil {
			apierror.New(sandbox.Errorf(sandbox.FileNotFound, "no such file"), "").Write(w)
			return
		}
		kind := "file"
		if info.IsDir() {
			kind = "directory"
		}
		_ = json.NewEncoder(w).Encode(wire.FileInfo{Name: path.Base(local), Type: kind, Mode: "0640"})
	case "GET files":
		http.ServeFile(w, r, local)
	case "PUT files":
		data, _ := io.ReadAll(r.Body)
		_ = os.WriteFile(local, data, 0o644)
		_, _ = w.Write([]byte("{}"))
	case "POST files/mkdir":
		var in wire.Mkdir
		_ = json.NewDecoder(r.Body).Decode(&in)
		_ = os.MkdirAll(filepath.Join(h.dir, in.Path), 0o755)
		_ = json.NewEncoder(w).Encode(wire.FileInfo{Path: in.Path, Type: "directory"})
	case "PUT files/archive":
		_ = os.MkdirAll(local, 0o755)
		unpack := exec.CommandContext(r.Context(), "tar", "-xf", "-", "-C", local)
		unpack.Stdin = r.Body
		if out, err := unpack.CombinedOutput(); err != nil {
			apierror.New(sandbox.Errorf(sandbox.Invalid, "%s", out), "").Write(w)
		}
	case "GET files/archive":
		pack := exec.CommandContext(r.Context(), "tar", "-cf", "-", "-C", local, ".")
		pack.Stdout = w
		if pack.Run() != nil {
			panic(http.ErrAbortHandler)
		}
	case "GET files/watch":
		_, _ = io.WriteString(w, `{"type":"ready"}
{"type":"created","path":"/w/d","directory":true}
{"type":"ping"}
{"type":"overflow"}
{"type":"removed","path":"/w/\u001b[2J"}
{"type":"ended"}
`)
	default:
		http.NotFound(w, r)
	}
}

// attach runs the command here; "-C DIR" of tar is taken below dir.
func (h *host) attach(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.AttachReadLimit)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var start wire.AttachStart
	_, data, err := conn.Read(ctx)
	if err != nil || json.Unmarshal(data, &start) != nil {
		return
	}
	if i := slices.Index(start.Command, "-C"); i > 0 {
		start.Command[i+1] = filepath.Join(h.dir, start.Command[i+1])
	}
	cmd := exec.CommandContext(ctx, start.Command[0], start.Command[1:]...)
	stdin, feed := io.Pipe()
	if start.Stdin {
		cmd.Stdin = stdin
	}
	cmd.Stdout = channel{ctx, conn, wire.ChannelStdout}
	cmd.Stderr = channel{ctx, conn, wire.ChannelStderr}
	if err := cmd.Start(); err != nil {
		return
	}
	go func() {
		defer cancel() // the client went away: the command is killed
		for {
			kind, data, err := conn.Read(ctx)
			if err != nil {
				return
			}
			if kind == websocket.MessageText {
				_ = feed.Close() // the only control these tests send is stdin_eof
				continue
			}
			_, _ = feed.Write(data[1:])
		}
	}()
	if h.started != nil {
		close(h.started)
	}
	_ = cmd.Wait()
	_ = stdin.Close()
	code := cmd.ProcessState.ExitCode()
	exit, _ := json.Marshal(wire.StreamMessage{Type: wire.StreamExit, ExitCode: &code})
	_ = conn.Write(ctx, websocket.MessageText, exit)
	<-ctx.Done() // until the client closes
}

// channel sends output as messages.
type channel struct {
	ctx  context.Context
	conn *websocket.Conn
	id   byte
}

func (c channel) Write(p []byte) (int, error) {
	return len(p), c.conn.Write(c.ctx, websocket.MessageBinary, append([]byte{c.id}, p...))
}

func newHost(t *testing.T) *host { return &host{dir: t.TempDir(), create: demo()} }

func TestRun(t *testing.T) {
	h := newHost(t)
	r := invoke(t, h, "to the command", "run", "-i", "modbox/base", "--", "sh", "-c", "cat; echo warning >&2; exit 7")
	if r.code != 7 || r.stdout != "to the command" || r.stderr != "warning\n" {
		t.Errorf("run = %+v, want the command's code and output", r)
	}
	if want := []string{"POST", "GET exec/attach", "DELETE"}; !slices.Equal(h.called(), want) {
		t.Errorf("calls = %v, want %v", h.called(), want)
	}
}

func TestRunKeeps(t *testing.T) {
	h := newHost(t)
	r := invoke(t, h, "", "run", "--keep", "modbox/base", "true")
	if r.code != 0 || !strings.Contains(r.stderr, "demo") || slices.Contains(h.called(), "DELETE") {
		t.Errorf("run --keep = %+v after %v, want the sandbox named and left", r, h.called())
	}
}

func TestRunOfASandboxThatFails(t *testing.T) {
	h := newHost(t)
	h.create = failed()
	r := invoke(t, h, "", "run", "modbox/base", "true")
	if r.code != base.ExitInternal || !strings.Contains(r.stderr, "limit of 512Mi") {
		t.Errorf("run = %+v, want code 125 and the cause", r)
	}
}

func TestInterruptKillsAndDestroys(t *testing.T) {
	h := newHost(t)
	h.started = make(chan struct{})
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-h.started
		interrupt()
	}()
	r := invokeContext(ctx, t, h, "", "run", "modbox/base", "--", "sleep", "1000")
	if r.code != base.ExitInterrupt || !slices.Contains(h.called(), "DELETE") {
		t.Errorf("run = %+v after %v, want code 130 and the sandbox destroyed", r, h.called())
	}
}

func TestCopyFiles(t *testing.T) {
	h := newHost(t)
	local := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(local, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := invoke(t, h, "", "cp", local, "demo:/"); r.code != 0 {
		t.Fatalf("cp into a directory = %+v", r)
	}
	if r := invoke(t, h, "", "cp", "demo:/f", "-"); r.code != 0 || r.stdout != "content" {
		t.Errorf("cp to standard output = %+v", r)
	}
	if r := invoke(t, h, "typed", "cp", "-", "demo:/g"); r.code != 0 {
		t.Errorf("cp from standard input = %+v", r)
	}
	to := filepath.Join(t.TempDir(), "g")
	if r := invoke(t, h, "", "cp", "demo:/g", to); r.code != 0 {
		t.Errorf("cp out = %+v", r)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(to); string(data) != "typed" || info.Mode().Perm() != 0o640 {
		t.Errorf("copied %q with mode %v, want %q with 0640", data, info.Mode(), "typed")
	}
	if r := invoke(t, h, "", "cp", "demo:/nothing", to); r.code != base.ExitFailure || !strings.Contains(r.stderr, "[file_not_found]") {
		t.Errorf("cp of nothing = %+v", r)
	}
}

// A copy shows on a terminal how much has been copied. More than the announced size ends no copy: a file may grow, and
// files below /proc have the size 0.
func TestCopyShowsProgress(t *testing.T) {
	shown := func(use func(terminal *os.File)) string {
		t.Helper()
		screen, terminal, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer screen.Close()
		all := make(chan string)
		go func() {
			b, _ := io.ReadAll(screen) // ends with an error when the terminal is closed
			all <- string(b)
		}()
		use(terminal)
		terminal.Close()
		return <-all
	}
	srv := httptest.NewServer(newHost(t))
	defer srv.Close()
	local := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(local, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	got := shown(func(terminal *os.File) {
		env := &base.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: terminal, Environ: []string{"MODBOX_URL=" + srv.URL, "MODBOX_API_TOKEN=mbx_test"}}
		for _, args := range [][]string{{"cp", local, "demo:/large"}, {"cp", "demo:/large", local + "2"}} {
			if code := execute(t.Context(), env, args); code != 0 {
				t.Errorf("modbox %v = %d", args, code)
			}
		}
	})
	if !strings.Contains(got, "large") || !strings.Contains(got, "%") {
		t.Errorf("copies showed %q", got)
	}
	if info, err := os.Stat(local + "2"); err != nil || info.Size() != 3<<20 {
		t.Errorf("copied %v, %v", info, err)
	}
	for _, total := range []int64{-1, 0, 3} {
		shown(func(terminal *os.File) {
			if b, err := io.ReadAll(base.NewTransfer(terminal, "x", total).Reader(strings.NewReader("0123456789"))); err != nil || len(b) != 10 {
				t.Errorf("10 bytes announced as %d = %q, %v", total, b, err)
			}
		})
	}
}

// A target on this machine keeps its content when the file in the sandbox cannot be read.
func TestCopyOfAnUnreadableFileKeepsTheTarget(t *testing.T) {
	h := newHost(t)
	if err := os.WriteFile(filepath.Join(h.dir, "locked"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/files") {
			apierror.New(sandbox.Errorf(sandbox.Forbidden, "permission denied"), "").Write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
	to := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(to, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := invoke(t, server, "", "cp", "demo:/locked", to); r.code != base.ExitFailure {
		t.Errorf("cp = %+v, want a failure", r)
	}
	if data, err := os.ReadFile(to); err != nil || string(data) != "precious" {
		t.Errorf("the target has %q, %v after a copy that failed", data, err)
	}
}

func TestWatch(t *testing.T) {
	h := newHost(t)
	want := "created     /w/d/\noverflow    \nremoved     /w/\ufffd[2J\n"
	if r := invoke(t, h, "", "watch", "-r", "demo", "/w"); r.code != 0 || r.stdout != want || !strings.Contains(r.stderr, "watching /w") {
		t.Errorf("watch = %+v, want %q", r, want)
	}
	r := invoke(t, h, "", "--json", "watch", "demo")
	if lines := strings.Split(r.stdout, "\n"); r.code != 0 || lines[0] != `{"type":"created","path":"/w/d","directory":true}` || len(lines) != 4 {
		t.Errorf("watch --json = %+v", r)
	}
}

func TestCopyTrees(t *testing.T) {
	h := newHost(t)
	src := filepath.Join(t.TempDir(), "tree")
	if err := os.MkdirAll(filepath.Join(src, "sub", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	for name, data := range map[string][]byte{"a": []byte("a"), "sub/big": big} {
		if err := os.WriteFile(filepath.Join(src, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"inside": "sub/big", "outside": "/etc/passwd", "up": "../../x"} {
		if err := os.Symlink(target, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	if r := invoke(t, h, "", "cp", src, "demo:/"); r.code != 0 {
		t.Fatalf("cp in = %+v", r)
	}
	to := filepath.Join(t.TempDir(), "copy")
	r := invoke(t, h, "", "cp", "demo:/tree", to)
	if r.code != 0 || strings.Count(r.stderr, "left out") != 2 {
		t.Fatalf("cp out = %+v, want two links left out", r)
	}
	got, err := os.ReadFile(filepath.Join(to, "inside"))
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("copied %d bytes through the link, %v, want %d", len(got), err, len(big))
	}
	if info, err := os.Stat(filepath.Join(to, "sub", "empty")); err != nil || !info.IsDir() {
		t.Errorf("empty directory: %v", err)
	}
}
