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
		visitUntil(t, sb.URL, func(body string) bool { return body == want })
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
	visit("4 10.0.0.1") // the interface for visitors leads there
	if res := s.Bash(sb.ID, "exec 3<>/dev/tcp/10.0.0.1/53", time.Minute); res.ExitCode == 0 {
		t.Error("the sandbox reaches the DNS server after its network was switched off")
	}
	// The resolver still asks 10.0.0.1, which refuses at once. Its own timeout is 30 seconds here.
	res := s.Bash(sb.ID, `grep -q "nameserver 10.0.0.1" /etc/resolv.conf && RES_OPTIONS="timeout:30 attempts:5" python3 -c '
import socket, time
begun = time.monotonic()
try:
    print("resolved", socket.getaddrinfo("example.com", 80))
except OSError:
    print("waited" if time.monotonic() - begun > 29 else "refused")
'`, 10*time.Minute)
	if out := strings.TrimSpace(string(res.Stdout)); out != "refused" {
		t.Errorf("a name after the network was switched off: %q %s", out, res.Stderr)
	}
}

// visitUntil requests a page over new connections until its body is as wanted: when the host is busy, a
// sandbox may answer too late for a connection over its interface.
func visitUntil(t *testing.T, url string, ok func(body string) bool) {
	t.Helper()
	visitor := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		resp, err := visitor.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && ok(string(body)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET %s = %d %q, %v", url, resp.StatusCode, body, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestVisitorsWithoutNetwork visits a sandbox without network over its interface, through a pause, a fork
// and a kill of the server, and tries to leave the sandbox over it.
func TestVisitorsWithoutNetwork(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: codeExec, Network: client.Network{Ports: []uint16{8080, 8081}}})
	const server = `
import http.server, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.client_address[0].encode())
    def log_message(self, *a): pass
threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 8081), H).serve_forever).start()
http.server.ThreadingHTTPServer(("", 8080), H).serve_forever()
`
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/server.py", strings.NewReader(server), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, `setsid nohup python3 /tmp/server.py >/dev/null 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.05; done`, time.Minute)
	interfaces := func(want string) {
		t.Helper()
		if res := s.Bash(sb.ID, "grep -c eth /proc/net/dev", time.Minute); strings.TrimSpace(string(res.Stdout)) != want {
			t.Errorf("%s interfaces, want %s", res.Stdout, want)
		}
	}
	visit := func(url, want string) {
		t.Helper()
		visitUntil(t, url, func(body string) bool { return body == want })
	}
	interfaces("0") // nobody has visited it
	visit(sb.URL, "10.0.0.1")
	interfaces("1")
	visit(sb.Network.Ports[1].URL, "127.0.0.1") // its server listens on the loopback alone
	host := strings.TrimPrefix(s.URL, "http://127.0.0.1:")
	const hostile = `
import socket, struct, sys
def refused(kind, to, data=b""):
    k = socket.socket(socket.AF_INET, kind)
    k.settimeout(2)
    try:
        k.connect(to)
        k.send(data)
        if kind == socket.SOCK_STREAM or k.recv(1):
            print("reached", kind, to)
    except OSError as e:
        pass
    finally:
        k.close()
question = b"\x01\x02\x01\x00\x00\x01" + bytes(6) + b"\x07example\x03com\x00\x00\x01\x00\x01"
for host in ["10.0.0.1", "10.0.0.3", "169.254.169.254", "1.1.1.1", "192.168.1.1"]:
    for port in [22, 53, 80, 443, 49983, int(sys.argv[1])]:
        refused(socket.SOCK_STREAM, (host, port))
    refused(socket.SOCK_DGRAM, (host, 53), question)
try:
    print("resolved", socket.getaddrinfo("example.com", 80))
except OSError:
    pass
`
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/hostile.py", strings.NewReader(hostile), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if res := s.Bash(sb.ID, "python3 /tmp/hostile.py "+host, 10*time.Minute); res.ExitCode != 0 || len(res.Stdout) != 0 {
		t.Errorf("out of a sandbox without network: %s%s", res.Stdout, res.Stderr)
	}
	if st, err := s.Sandboxes.Stats(t.Context(), sb.ID); err != nil || st.SentBytes != 0 || st.ReceivedBytes != 0 {
		t.Errorf("Stats() = %+v, %v, want no traffic", st, err)
	}

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	visit(sb.URL, "10.0.0.1") // resumes it
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	visit(sb.URL, "10.0.0.1")
	for _, f := range forks {
		visit(f.Sandbox.URL, "10.0.0.1")
	}
	s.Kill()
	s.Launch()
	if sb, err = s.Sandboxes.Get(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	visit(sb.URL, "10.0.0.1")
	interfaces("2") // the interface of the killed server remains, switched off
}
