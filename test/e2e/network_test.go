package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// codeExec has npm, apt and Python.
const codeExec = "modbox/code-exec"

// mirrors returns the npm registry of this host, and the settings of a server
// whose sandboxes may install packages from it and from Debian: on a host where
// these are addresses of its own network, they must be opened.
func mirrors(t *testing.T) (npm string, args []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "npm", "config", "get", "registry").Output()
	if err != nil {
		t.Fatalf("npm config get registry: %v", err)
	}
	npm = strings.TrimSpace(string(out))
	_, host, _ := strings.Cut(npm, "://")
	host, _, _ = strings.Cut(host, "/")
	host, _, _ = strings.Cut(host, ":")
	var open []string
	for _, name := range []string{host, "deb.debian.org", "security.debian.org"} {
		addresses, err := net.DefaultResolver.LookupIP(t.Context(), "ip4", name)
		if err != nil {
			t.Fatalf("sandboxes of this suite install packages from %s: %v", name, err)
		}
		for _, a := range addresses {
			open = append(open, a.String())
		}
	}
	args = []string{"--network-allow-cidrs", strings.Join(open, ",")}
	if ca := os.Getenv("NODE_EXTRA_CA_CERTS"); ca != "" {
		args = append(args, "--network-ca-file", ca)
	}
	return npm, args
}

// oldConnection reports the fate of a connection that is used again later.
const oldConnection = `
import os, socket, time
s = socket.create_connection(("deb.debian.org", 80))
open("/tmp/connected", "w").close()
while not os.path.exists("/tmp/again"): time.sleep(0.05)
try:
    s.settimeout(120)
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    word = "alive" if s.recv(1) else "closed"
except TimeoutError: word = "silent"
except OSError: word = "broken"
with open("/tmp/old.new", "w") as f: f.write(word)
os.rename("/tmp/old.new", "/tmp/old")
`

func TestNetworkOfASandbox(t *testing.T) {
	t.Parallel() // it waits for mirrors
	npm, args := mirrors(t)
	s := testserver.Start(t, args...)
	sb := s.MustCreate(client.CreateOptions{Image: codeExec, Network: client.Network{Enabled: true}})
	must := func(ref, line string) string {
		t.Helper()
		res := s.Bash(ref, line, 15*time.Minute)
		if res.ExitCode != 0 {
			t.Fatalf("%s\nended with %d:\n%s%s", line, res.ExitCode, lastOf(res.Stdout), lastOf(res.Stderr))
		}
		return string(res.Stdout)
	}
	fetch := "curl -fsS -m 120 -o /dev/null " + npm + "is-number"
	if out := must(sb.ID, "cat /etc/resolv.conf"); out != "nameserver 10.0.0.1\n" {
		t.Errorf("resolv.conf is %q", out)
	}
	must(sb.ID, "getent hosts deb.debian.org")
	must(sb.ID, `cd /tmp && npm install --no-audit --no-fund is-odd && node -e 'process.exit(require("is-odd")(3) ? 0 : 1)'`)
	must(sb.ID, "(sudo apt-get -q update && sudo apt-get -q install -y --no-install-recommends sl) 2>&1 && test -x /usr/games/sl")

	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/old.py", strings.NewReader(oldConnection), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	must(sb.ID, "setsid nohup python3 /tmp/old.py >/dev/null 2>&1 & until test -e /tmp/connected; do sleep 0.05; done")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	must(sb.ID, fetch) // resumes it
	if out := must(sb.ID, "touch /tmp/again; until test -e /tmp/old; do sleep 0.05; done; cat /tmp/old"); out != "broken" {
		t.Errorf("a connection of before the pause is %s, want broken", out)
	}

	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || children[0].Err != nil {
		t.Fatal(err, children)
	}
	child := children[0].Sandbox.ID
	must(sb.ID, fetch)
	must(child, fetch)
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "cp"); err != nil {
		t.Fatal(err)
	}
	must(sb.ID, fetch)
	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "cp"); err != nil {
		t.Fatal(err)
	}
	must(sb.ID, fetch)

	before := usageOf(t, s, sb.ID)
	if before.ReceivedBytes < 100<<10 || before.SentBytes < 1<<10 || before.CPUSeconds <= 0 || before.MemoryByteSeconds < 1<<20 {
		t.Errorf("usage after installing packages: %+v", before)
	}
	s.Kill()
	s.Launch()
	must(sb.ID, fetch)
	must(child, fetch)
	after := usageOf(t, s, sb.ID)
	if after.CPUSeconds < before.CPUSeconds || after.RunningSeconds < before.RunningSeconds || after.MemoryByteSeconds < before.MemoryByteSeconds {
		t.Errorf("usage after a crash of the server: %+v, before %+v", after, before)
	}

	off := false
	if _, err := s.Sandboxes.SetNetwork(t.Context(), sb.ID, client.NetworkChange{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	if res := s.Bash(sb.ID, fetch, time.Minute); res.ExitCode == 0 {
		t.Error("a sandbox whose network was switched off reaches the registry")
	}
	must(child, fetch)
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if ended := usageOf(t, s, sb.ID); ended.ReceivedBytes < after.ReceivedBytes || ended.CPUSeconds < after.CPUSeconds {
		t.Errorf("usage of the ended sandbox: %+v, before %+v", ended, after)
	}
}

func usageOf(t *testing.T, s *testserver.Server, ref string) *client.Usage {
	t.Helper()
	u, err := s.Sandboxes.Usage(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func lastOf(b []byte) string { return string(b[max(0, len(b)-2000):]) }

// listen starts a server on every address of the host and returns its port.
func listen(t *testing.T) int {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the host") })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Shutdown
	}()
	t.Cleanup(func() {
		_ = srv.Shutdown(context.WithoutCancel(t.Context()))
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// outward returns an address of the host that leads out of it.
func outward(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this host has no address but loopback")
	return ""
}

// The host and its surroundings are closed, and an address of the host is open where the operator
// says so.
func TestClosedAddresses(t *testing.T) {
	port, host := listen(t), outward(t)
	get := func(address string) string { return fmt.Sprintf("curl -sS -m 120 http://%s:%d/", address, port) }
	t.Run("Closed", func(t *testing.T) {
		s := testserver.StartSmall(t)
		sb := s.MustCreate(client.CreateOptions{Image: image, Network: client.Network{Enabled: true}})
		for _, address := range []string{
			host, "127.0.0.1", "10.0.0.1", "10.1.2.3", "192.168.1.1", "172.17.0.1", "169.254.169.254", "169.254.1.1", "100.64.0.1",
		} {
			res := s.Bash(sb.ID, get(address), time.Minute)
			if res.ExitCode != 7 { // curl's code for a refused connection
				t.Errorf("%s: code %d, %q %q, want a refusal", address, res.ExitCode, res.Stdout, res.Stderr)
			}
		}
	})
	t.Run("Opened", func(t *testing.T) {
		s := testserver.StartSmall(t, "--network-allow-cidrs", host)
		sb := s.MustCreate(client.CreateOptions{Image: image, Network: client.Network{Enabled: true}})
		if res := s.Bash(sb.ID, get(host), time.Minute); string(res.Stdout) != "the host" {
			t.Errorf("an opened address: code %d, %q %q", res.ExitCode, res.Stdout, res.Stderr)
		}
		plain := s.MustCreate(client.CreateOptions{Image: image})
		if res := s.Bash(plain.ID, get(host), time.Minute); res.ExitCode == 0 {
			t.Errorf("a sandbox without network reached it: %q", res.Stdout)
		}
	})
}

func TestNetworkCommands(t *testing.T) {
	s := testserver.Start(t)
	must := func(args ...string) string {
		t.Helper()
		out, errOut, code := run(t, s, "", args...)
		if code != 0 {
			t.Fatalf("modbox %v = %d %q %q", args, code, out, errOut)
		}
		return out
	}
	must("create", codeExec, "--name", "a", "--network", "--port", "3000", "--port", "4000")
	sb, err := s.Sandboxes.Get(t.Context(), "a")
	if err != nil || !sb.Network.Enabled || len(sb.Network.Ports) != 2 {
		t.Fatalf("network %+v, %v", sb.Network, err)
	}
	must("exec", "--detach", "a", "--", "python3", "-m", "http.server", "-d", "/etc", "3000")
	must("exec", "a", "--", "sh", "-c", "until curl -s -o /dev/null http://127.0.0.1:3000/; do sleep 0.1; done")
	for _, url := range []string{sb.URL, sb.Network.Ports[0].URL} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/passwd", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %d", url, resp.StatusCode)
		}
	}
	// The gateway takes connections to its DNS server as long as it is there.
	const asks = "timeout 60 bash -c '</dev/tcp/10.0.0.1/53' 2>/dev/null && echo there || echo gone"
	for _, step := range []struct{ command, want string }{{"on", "there"}, {"off", "gone"}, {"on", "there"}} {
		if out := must("network", step.command, "a"); out != "a\n" {
			t.Errorf("network %s printed %q", step.command, out)
		}
		if out := must("exec", "a", "--", "sh", "-c", asks); out != step.want+"\n" {
			t.Errorf("after network %s the gateway is %q, want %s", step.command, out, step.want)
		}
	}
	if out := must("network", "publish", "a", "5000"); !strings.HasPrefix(out, "5000 "+s.URL+"/s/p5000-") {
		t.Errorf("network publish printed %q", out)
	}
	if out := must("usage", "a"); !strings.Contains(out, "CPU TIME") || !strings.Contains(out, "GiB·h") {
		t.Errorf("usage printed %q", out)
	}
	if _, errOut, code := run(t, s, "", "create", image, "--port", "0"); code == 0 || !strings.Contains(errOut, "--port") {
		t.Errorf("create --port 0 = %d %q", code, errOut)
	}
}
