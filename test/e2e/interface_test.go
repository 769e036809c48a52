package e2e_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestServerOnTheInterface visits a server that listens on its sandbox's own
// address alone, so that only the interface leads to it, and lets the sandbox
// fall asleep twice: its network is no activity, and is there again after a resume.
func TestServerOnTheInterface(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{
		Image: codeExec, Network: client.Network{Enabled: true}, Timeouts: client.Timeouts{IdleSeconds: 10, OnIdle: "pause"},
	})
	const server = `
import http.server
n = 0
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global n
        n += 1
        self.send_response(200); self.end_headers(); self.wfile.write(b"%d %s" % (n, self.client_address[0].encode()))
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("10.0.0.2", 8080), H).serve_forever()
`
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/server.py", strings.NewReader(server), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, `setsid nohup python3 /tmp/server.py >/dev/null 2>&1 & until (exec 3<>/dev/tcp/10.0.0.2/8080) 2>/dev/null; do sleep 0.05; done`, time.Minute)
	if res := s.Bash(sb.ID, "(exec 3<>/dev/tcp/127.0.0.1/8080)", time.Minute); res.ExitCode == 0 {
		t.Fatal("the server is on the loopback too: this test shows nothing")
	}
	visit := func(want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != want {
			t.Fatalf("GET %s = %d %q, %v, want %q", sb.URL, resp.StatusCode, body, err, want)
		}
	}
	visit("1 10.0.0.1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, want := range []string{"2 10.0.0.1", "3 10.0.0.1"} {
		if now, err := s.Sandboxes.Wait(ctx, sb.ID, client.Paused); err != nil || now.State != client.Paused {
			t.Fatalf("a sandbox that nobody uses: %+v, %v, want it paused", now, err)
		}
		visit(want) // resumes it
		if res := s.Bash(sb.ID, "exec 3<>/dev/tcp/10.0.0.1/53", time.Minute); res.ExitCode != 0 {
			t.Errorf("the gateway after a resume: %s", res.Stderr)
		}
	}
	if _, err := s.Sandboxes.SetNetwork(t.Context(), sb.ID, client.NetworkChange{Enabled: new(bool)}); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("X-Modbox-Error") != "port_closed" {
		t.Errorf("without network: %d %q, want 502 port_closed", resp.StatusCode, resp.Header.Get("X-Modbox-Error"))
	}
}
