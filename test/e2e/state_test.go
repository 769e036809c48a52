package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestServerInASandboxOutlivesPauses starts a server that counts requests in its
// memory, and finds it counting on after a pause, in forks, and after going back.
func TestServerInASandboxOutlivesPauses(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	const server = `
import http.server
n = 0
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global n
        n += 1
        self.send_response(200); self.end_headers(); self.wfile.write(str(n).encode())
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), H).serve_forever()
`
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/server.py", strings.NewReader(server), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, `setsid nohup python3 /tmp/server.py >/dev/null 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.05; done`, time.Minute)
	visit := func(url, want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || string(body) != want {
			t.Fatalf("GET %s = %d %q, %v, want %q", url, resp.StatusCode, body, err, want)
		}
	}
	visit(sb.URL, "1")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	visit(sb.URL, "2") // resumes it
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "two"); err != nil {
		t.Fatal(err)
	}
	visit(sb.URL, "3")
	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 3, Env: map[string]string{"ROLE": "worker"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range children {
		if child.Err != nil {
			t.Fatal(child.Err)
		}
		visit(child.Sandbox.URL, "4")
		if out := s.Bash(child.Sandbox.ID, `echo $ROLE $MODBOX_SANDBOX_ID`, time.Minute); string(out.Stdout) != "worker "+child.Sandbox.ID+"\n" {
			t.Errorf("identity of a child: %q, want its own", out.Stdout)
		}
	}
	visit(sb.URL, "4")
	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "two"); err != nil {
		t.Fatal(err)
	}
	visit(sb.URL, "3")
}

func TestStateCommands(t *testing.T) {
	s := testserver.StartSmall(t)
	must := func(args ...string) string {
		t.Helper()
		out, errOut, code := run(t, s, "", args...)
		if code != 0 {
			t.Fatalf("modbox %v = %d %q %q", args, code, out, errOut)
		}
		return out
	}
	must("create", image, "--name", "a", "--idle", "10m", "--on-idle", "pause", "--paused-timeout", "1h")
	must("exec", "a", "--", "sh", "-c", "echo one > /tmp/f")
	if out := must("checkpoint", "create", "a", "first"); out != "first\n" {
		t.Errorf("checkpoint create printed %q", out)
	}
	if out := must("pause", "a"); out != "a\n" {
		t.Errorf("pause printed %q", out)
	}
	if out := must("ls"); !strings.Contains(out, "paused") {
		t.Errorf("ls of a paused sandbox: %q", out)
	}
	must("resume", "a")
	must("exec", "a", "--", "sh", "-c", "echo two > /tmp/f")
	must("checkpoint", "restore", "a", "first")
	if out := must("exec", "a", "--", "cat", "/tmp/f"); out != "one\n" {
		t.Errorf("file after going back: %q", out)
	}
	if out := must("checkpoint", "ls", "a"); !strings.Contains(out, "first") {
		t.Errorf("checkpoint ls: %q", out)
	}
	must("checkpoint", "rm", "a", "first")
	if ids := strings.Fields(must("fork", "a", "-n", "2", "--name", "b")); len(ids) != 2 {
		t.Errorf("fork printed %q, want two ids", ids)
	}
	if out := must("exec", "b", "--", "cat", "/tmp/f"); out != "one\n" {
		t.Errorf("file of a fork: %q", out)
	}
}
