package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// workerProcess is a process of modbox worker, which does not see the server's state directory.
type workerProcess struct {
	t      *testing.T
	hidden string // the server's state directory
	args   []string
	cmd    *exec.Cmd
	log    *os.File
	state  string // its own directories
	run    string
	link   *slowLink
}

// launch starts the worker.
func (w *workerProcess) launch() {
	w.t.Helper()
	const elsewhere = `mount --make-rprivate / && mount -t tmpfs none "$0" && exec "$@"`
	w.cmd = exec.Command("unshare", append([]string{"--mount", "sh", "-c", elsewhere, w.hidden, testserver.Binary(w.t)}, w.args...)...)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// end ends the worker with a signal and waits for it.
func (w *workerProcess) end(signal os.Signal) {
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Signal(signal)
	_ = w.cmd.Wait()
	w.cmd = nil
}

// startWithWorker starts a server whose sandboxes run on a worker. At the end, nothing may remain in the worker's directories.
func startWithWorker(t *testing.T, args ...string) (*testserver.Server, *workerProcess) {
	t.Helper()
	s, workers := startWithWorkers(t, 1, args...)
	return s, workers[0]
}

// startWithWorkers is startWithWorker with several workers, named worker-1 and so on.
func startWithWorkers(t *testing.T, n int, args ...string) (*testserver.Server, []*workerProcess) {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("runs on real gVisor: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	stateDir := t.TempDir()
	made, token := filepath.Join(stateDir, "worker", "token"), filepath.Join(t.TempDir(), "token")
	var workers []*workerProcess
	for i := range n {
		workers = append(workers, newWorkerProcess(t, fmt.Sprintf("worker-%d", i+1), stateDir, token, address))
	}
	joined := make(chan struct{})
	go func() { // the server is ready when it has its worker
		defer close(joined)
		for {
			text, err := os.ReadFile(made)
			if err == nil {
				err = os.WriteFile(token, text, 0o600)
			}
			if err == nil || t.Context().Err() != nil {
				break
			}
			time.Sleep(10 * time.Millisecond) // polling a file of another process
		}
		for _, w := range workers {
			w.launch()
		}
	}()
	s := testserver.StartSmallIn(t, stateDir, append([]string{"--worker-listen", address}, args...)...)
	<-joined
	return s, workers
}

// newWorkerProcess returns a worker of the server at an address that is not running yet.
func newWorkerProcess(t *testing.T, name, serverDir, token, address string) *workerProcess {
	t.Helper()
	runDir, err := os.MkdirTemp("/tmp", "mbw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runDir) })
	w := &workerProcess{t: t, hidden: serverDir, state: t.TempDir(), run: runDir, link: newSlowLink(t, address)}
	w.args = []string{"worker", "--join", w.link.address(), "--token-file", token, "--name", name, "--state-dir", w.state, "--run-dir", runDir}
	if w.log, err = os.Create(filepath.Join(t.TempDir(), "worker.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the end of the server
		w.end(os.Interrupt)
		for _, pattern := range []string{filepath.Join(runDir, "boxes", "*"), filepath.Join(w.state, "layers", "*"), filepath.Join(w.state, "under-way", "*"), filepath.Join(w.state, "images", "boxes", "*")} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 {
				t.Errorf("left by the worker: %q", left)
			}
		}
		if left := processesNaming(runDir); len(left) > 0 {
			t.Errorf("processes left by the worker: %q", left)
		}
		if text, err := os.ReadFile(w.log.Name()); t.Failed() && err == nil {
			t.Logf("the log of %s:\n%s", name, text)
		}
		_ = w.log.Close()
	})
	return w
}

// processesNaming lists the processes that name a directory on their command line.
func processesNaming(dir string) []string {
	var found []string
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), dir) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}

// TestWorker runs sandboxes on a worker, and kills the worker and the server.
func TestWorker(t *testing.T) {
	s, w := startWithWorker(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	if n := len(s.BoxProcesses()); n != 0 {
		t.Errorf("%d processes of sandboxes are the server's", n)
	}
	// The shell remembers a number, and adds one for each line that it reads.
	const counter = `mkfifo /tmp/in /tmp/out; setsid nohup bash -c 'n=0; while :; do read line </tmp/in; n=$((n+1)); echo $n >/tmp/out; done' >/dev/null 2>&1 &`
	s.Bash(sb.ID, counter, time.Minute)
	count := func(id string, want int) {
		t.Helper()
		out := s.Bash(id, `echo >/tmp/in; cat /tmp/out`, time.Minute)
		if got := strings.TrimSpace(string(out.Stdout)); got != fmt.Sprint(want) {
			t.Errorf("the counter is %q, want %d (%s)", got, want, out.Stderr)
		}
	}
	// available calls until a call succeeds: a worker may be away.
	available := func(id string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // polling another process
			out, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/echo", "here"}, Timeout: time.Minute})
			if err == nil && string(out.Stdout) == "here\n" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the sandbox does not answer: %v", err)
			}
		}
	}
	count(sb.ID, 1)

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	count(sb.ID, 2) // resumes it
	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 2})
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	for _, child := range children {
		if child.Err != nil {
			t.Fatalf("fork: %v", child.Err)
		}
		count(child.Sandbox.ID, 3)
	}
	count(sb.ID, 3)

	s.Bash(sb.ID, "echo layer >/layer", time.Minute)
	snapshot, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{})
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	layered := s.MustCreate(client.CreateOptions{Snapshot: snapshot.ID})
	if out := s.Bash(layered.ID, "cat /layer; ls /usr/bin | wc -l", time.Minute); !strings.HasPrefix(string(out.Stdout), "layer\n") || len(out.Stdout) < len("layer\n100\n") {
		t.Errorf("a sandbox of a snapshot has %q, want a layer over the image", out.Stdout)
	}

	w.end(os.Kill)
	w.launch()
	available(sb.ID)
	count(sb.ID, 4)
	count(children[0].Sandbox.ID, 4)

	s.Kill()
	s.Launch()
	available(sb.ID)
	count(sb.ID, 5)

	s.Kill()
	w.end(os.Kill)
	w.launch()
	s.Launch()
	available(sb.ID)
	count(sb.ID, 6)
	count(children[1].Sandbox.ID, 4)

	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := s.Sandboxes.Get(t.Context(), children[0].Sandbox.ID); err != nil {
		t.Errorf("get a fork: %v", err)
	}
}
