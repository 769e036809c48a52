package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/test/testserver"
)

// ordinaryUser is a user without any right.
const ordinaryUser = "1000"

// controlServer is a process of a server with the role control, without root and capabilities, which writes to its state directory alone.
type controlServer struct {
	*client.Client
	t        *testing.T
	url      string
	workers  string // the address for workers
	stateDir string
	args     []string
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the process has ended
	log      *os.File
}

// newStateDir returns a directory of the ordinary user.
func newStateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := os.Chown(dir, 1000, 1000)
	for at := dir; err == nil && at != os.TempDir() && at != "/"; { // t.TempDir is in a directory of its own
		if at = filepath.Dir(at); at != os.TempDir() {
			err = os.Chmod(at, 0o711)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newControlServer returns a server that is not running yet.
func newControlServer(t *testing.T, stateDir string, args ...string) *controlServer {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("runs on real gVisor: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	address := free()
	s := &controlServer{t: t, url: "http://" + address, workers: free(), stateDir: stateDir}
	s.args = append([]string{"server", "--role", "control", "--listen", address, "--worker-listen", s.workers, "--state-dir", stateDir}, args...)
	var err error
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "server.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end(syscall.SIGTERM)
		if text, err := os.ReadFile(s.log.Name()); t.Failed() && err == nil {
			t.Logf("the log of the server at %s:\n%s", address, text)
		}
		_ = s.log.Close()
	})
	return s
}

// launch starts the server.
func (s *controlServer) launch() {
	s.t.Helper()
	program := filepath.Join(newStateDir(s.t), "modbox") // the program may be where only root can read
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		s.t.Fatal(err)
	}
	const confined = `set -e
mount --make-rprivate /
mount --bind "$1" "$2"
mount --bind "$3" "$3"
mount -t tmpfs -o ro none /run
mount -t tmpfs -o ro none /sys
mount -o remount,bind,ro /
program=$2; shift 3
exec setpriv --reuid ` + ordinaryUser + ` --regid ` + ordinaryUser + ` --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$program" "$@"`
	s.cmd = exec.Command("unshare", append([]string{"--mount", "sh", "-c", confined, "sh", testserver.Binary(s.t), program, s.stateDir}, s.args...)...)
	s.cmd.Env = append(os.Environ(), "HOME=/", "TMPDIR="+s.stateDir, "MODBOX_POOL_SIZE=0")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
}

// end ends the server with a signal and waits for it.
func (s *controlServer) end(signal os.Signal) {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(signal)
		<-s.ended
	}
}

// active waits until the server is active, and makes its client.
func (s *controlServer) active() {
	s.t.Helper()
	s.ready(s.url+" is active", func(answer string) bool { return !strings.Contains(answer, `"role":"standby"`) })
}

// forwards waits until the server is a standby that forwards requests, and makes its client.
func (s *controlServer) forwards() {
	s.t.Helper()
	s.ready(s.url+" forwards requests", func(answer string) bool { return strings.Contains(answer, `"role":"standby"`) })
}

// ready waits until the server is ready with an answer that is wanted, and makes its client.
func (s *controlServer) ready(what string, wanted func(answer string) bool) {
	s.t.Helper()
	until(s.t, what, func() bool {
		select {
		case <-s.ended:
			s.t.Fatal("the server has ended")
		default:
		}
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK && wanted(string(text))
	})
	token, err := os.ReadFile(filepath.Join(s.stateDir, "token"))
	if err == nil {
		s.Client, err = client.New(s.url, strings.TrimSpace(string(token)), client.WithAttempts(1))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// run runs a shell's commands in a sandbox.
func (s *controlServer) run(id, script string, limit time.Duration) *client.ExecResult {
	s.t.Helper()
	out, err := s.Sandboxes.Exec(s.t.Context(), id, client.Command{Argv: []string{"/bin/sh", "-c", script}, Timeout: limit})
	if err != nil {
		s.t.Fatalf("exec %q: %v", script, err)
	}
	return out
}

// metric returns the value of a series of the server's metrics; 0 for none.
func (s *controlServer) metric(name string) (n float64) {
	s.t.Helper()
	_, text := visit(s.t, "GET", s.url+"/metrics", "", nil)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			_, _ = fmt.Sscan(value, &n)
		}
	}
	return n
}

// joinWorker starts a worker for servers with one state directory.
func joinWorker(t *testing.T, name, stateDir string, addresses ...string) *workerProcess {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	w := newWorkerProcess(t, name, stateDir, token, addresses[0])
	w.args[2] = strings.Join(addresses, ",")
	until(t, "the token is made", func() bool {
		text, err := os.ReadFile(filepath.Join(stateDir, "worker", "token"))
		return err == nil && os.WriteFile(token, text, 0o600) == nil
	})
	w.launch()
	return w
}

// busyboxDockerfile makes an image of a program alone.
const busyboxDockerfile = `FROM scratch
COPY --chmod=755 busybox /bin/busybox
RUN ["/bin/busybox", "--install", "/bin"]
RUN mkdir -p /tmp /srv && chmod 1777 /tmp && id -u >/srv/who && echo built >/srv/file
`

// buildBusybox builds app:v1.
func (s *controlServer) buildBusybox() {
	s.t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		s.t.Fatalf("the Debian package busybox-static is not installed: %v", err)
	}
	output := ""
	_, err = s.Images.Build(s.t.Context(), client.ImageBuildOptions{Tag: "app:v1"}, tarOf(s.t, map[string]string{"Dockerfile": busyboxDockerfile, "busybox": string(program)}), func(e client.ImageBuildEvent) { output += string(e.Data) })
	if err != nil {
		s.t.Fatalf("build: %v; output:\n%s", err, output)
	}
}

// counting starts a process in a sandbox that counts, and returns its number.
func (s *controlServer) counting(id string) (number func(s *controlServer) int) {
	s.t.Helper()
	s.run(id, "setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n >/tmp/new; mv /tmp/new /tmp/number; sleep 0.1; done' >/dev/null 2>&1 &", time.Minute)
	return func(s *controlServer) int {
		s.t.Helper()
		var n int
		out := s.run(id, "until [ -e /tmp/number ]; do sleep 0.1; done; cat /tmp/number", time.Minute)
		if _, err := fmt.Sscan(string(out.Stdout), &n); err != nil {
			s.t.Fatalf("the number is %q: %v", out.Stdout, err)
		}
		return n
	}
}

// TestControl runs sandboxes of a server that has no right on its machine.
func TestControl(t *testing.T) {
	stateDir := newStateDir(t)
	s := newControlServer(t, stateDir)
	s.launch()
	until(t, "the server answers while it waits for a worker", func() bool {
		resp, err := http.Get(s.url + "/healthz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	if status, body := visit(t, "GET", s.url+"/v1/sandboxes", "", nil); status != http.StatusServiceUnavailable || !strings.Contains(body, "unavailable") {
		t.Errorf("a request before a worker has joined: %d %s", status, body)
	}
	joinWorker(t, "worker-1", stateDir, s.workers)
	s.active()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t1000\t1000\t1000\t1000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the process of the server has no %q", want)
		}
	}

	s.buildBusybox()
	sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", Network: client.Network{Ports: []uint16{8080}}, WaitUpTo: 5 * time.Minute})
	if err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	if out := s.run(sb.ID, "cat /srv/who /srv/file", time.Minute); string(out.Stdout) != "0\nbuilt\n" {
		t.Errorf("exec: %q %q", out.Stdout, out.Stderr)
	}
	number := s.counting(sb.ID)
	s.run(sb.ID, "cd /srv && setsid busybox httpd -f -p 127.0.0.1:8080 >/dev/null 2>&1 &", time.Minute)
	until(t, "the server in the sandbox answers", func() bool {
		code, body := visit(t, "GET", sb.Network.Ports[0].URL+"/file", "", nil)
		return code == 200 && body == "built\n"
	})

	before := number(s)
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	resumed, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: "require"})
	if err != nil || resumed.State != client.Running {
		t.Fatalf("resume: %+v, %v", resumed, err)
	}
	until(t, "the number goes on", func() bool { return number(s) > before })
	wantVisit(t, "after the pause", sb.Network.Ports[0].URL+"/file", nil, 200, "built")
	snapshot, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{})
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 1})
	if err != nil || children[0].Err != nil {
		t.Fatalf("fork: %+v, %v", children, err)
	}
	for _, id := range []string{sb.ID, children[0].Sandbox.ID} {
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := s.Snapshots.Delete(t.Context(), snapshot.ID); err != nil {
		t.Error(err)
	}
	if children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid)); err != nil || len(children) > 0 {
		t.Errorf("processes of the server: %q, %v", children, err)
	}
}

// TestStandby uses a standby, and kills the active server: the standby takes over, the process in a sandbox goes on, and a reader of output goes on where it was.
func TestStandby(t *testing.T) {
	stateDir := newStateDir(t)
	cluster := storetest.StartCluster(t)
	if err := os.Chmod(cluster.Dir, 0o755); err != nil { // for the socket
		t.Fatal(err)
	}
	args := []string{"--standby", "true", "--database-url", cluster.URL("postgres")}
	a, b := newControlServer(t, stateDir, args...), newControlServer(t, stateDir, args...)
	a.launch()
	w := joinWorker(t, "worker-1", stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.forwards()
	b.buildBusybox()
	sb, err := b.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: 5 * time.Minute})
	if err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	for s, want := range map[*controlServer]float64{a: 1, b: 0} {
		if _, text := visit(t, "GET", s.url+"/metrics", "", nil); s.metric("modbox_server_active") != want || strings.Contains(text, "modbox_forward_requests") != (s == b) {
			t.Errorf("the metrics of %s are of another server", s.url)
		}
	}
	terminal, err := b.Sandboxes.Attach(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/sh", "-c", "read word; echo $word"}}, client.AttachOptions{Stdin: true, TTY: &client.Size{Cols: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = terminal.Write([]byte("typed\n"))
	var screen strings.Builder
	if exit, copied := terminal.Copy(&screen, io.Discard); err != nil || copied != nil || exit.ExitCode != 0 || strings.Count(screen.String(), "typed") != 2 {
		t.Errorf("a terminal at the standby: %+v, %q, %v, %v", exit, screen.String(), err, copied)
	}
	number := a.counting(sb.ID)
	const last = 200
	e, err := b.Executions.Start(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("n=0; while [ $n -lt %d ]; do n=$((n+1)); echo line $n; sleep 0.05; done", last)}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := number(a)
	var output strings.Builder
	follow := func(s *controlServer) io.ReadCloser { // from where the output ends
		t.Helper()
		r, err := s.Streams.Read(t.Context(), e.Stdout.StreamID, client.StreamOptions{Follow: true, Offset: int64(output.Len())})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := follow(b)
	if _, err := io.CopyN(&output, r, 500); err != nil {
		t.Fatal(err)
	}
	a.end(os.Kill)
	begin := time.Now()
	if _, err := io.Copy(&output, r); err == nil {
		t.Error("the output ends although its server was killed")
	}
	_ = r.Close()
	r = follow(b) // waits at the standby until that is active
	t.Logf("the output goes on %s after the kill", time.Since(begin))
	if _, err := io.Copy(&output, r); err != nil {
		t.Errorf("the rest of the output: %v", err)
	}
	_ = r.Close()
	want := strings.Builder{}
	for n := range last {
		fmt.Fprintf(&want, "line %d\n", n+1)
	}
	if output.String() != want.String() {
		t.Errorf("the output, read in parts from two servers, is %q", output.String())
	}
	b.active()
	until(t, "the number goes on", func() bool { return number(b) > before })
	if n := strings.Count(read(w.log.Name()), "serving a control plane"); n != 2 {
		t.Errorf("the worker has served %d control planes, want 2", n)
	}
	if _, err := b.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

func read(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}
