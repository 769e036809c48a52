package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// slowLink forwards connections of a worker to its server at a rate that a test chooses.
type slowLink struct {
	l    net.Listener
	to   string
	rate atomic.Int64 // bytes in a second in each direction; 0 for no limit
}

func newSlowLink(t *testing.T, to string) *slowLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowLink{l: l, to: to}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			worker, err := l.Accept()
			if err != nil {
				return
			}
			go s.forward(worker)
		}
	}()
	return s
}

func (s *slowLink) address() string { return s.l.Addr().String() }

func (s *slowLink) forward(worker net.Conn) {
	server, err := net.Dial("tcp", s.to)
	if err != nil {
		_ = worker.Close()
		return
	}
	for _, c := range []net.Conn{worker, server} { // few bytes are under way
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}
	go s.copy(server, worker)
	s.copy(worker, server)
}

func (s *slowLink) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if rate := s.rate.Load(); rate > 0 {
				time.Sleep(time.Duration(n) * time.Second / time.Duration(rate)) // the link itself
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// remember runs a process in a sandbox that counts the calls of count.
func remember(t *testing.T, bash func(id, script string, limit time.Duration) *client.ExecResult, id string) (count func(id string, want int)) {
	bash(id, `mkfifo /tmp/in /tmp/out; setsid nohup bash -c 'n=0; while :; do read line </tmp/in; n=$((n+1)); echo $n >/tmp/out; done' >/dev/null 2>&1 &`, time.Minute)
	return func(id string, want int) {
		t.Helper()
		out := bash(id, `echo >/tmp/in; cat /tmp/out`, 5*time.Minute)
		if got := strings.TrimSpace(string(out.Stdout)); got != fmt.Sprint(want) {
			t.Errorf("the counter is %q, want %d (%s)", got, want, out.Stderr)
		}
	}
}

// TestWorkerBehindASlowLink checks that the memory of a sandbox survives a transfer that takes longer than a start may, and that another
// sandbox can be used meanwhile.
func TestWorkerBehindASlowLink(t *testing.T) {
	s, w := startWithWorker(t, "--sandbox-start-timeout", "5s")
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	other := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	count := remember(t, s.Bash, sb.ID)
	count(sb.ID, 1)
	s.Bash(sb.ID, "head -c 50000000 /dev/urandom >/dev/shm/memory", time.Minute)
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	w.link.rate.Store(3 << 20)
	resumed := make(chan error, 1)
	go func() {
		_, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: "require"})
		resumed <- err
	}()
	begin := time.Now()
	uses := 0
	for done := false; !done; {
		select {
		case err := <-resumed:
			if err != nil {
				t.Fatalf("resume: %v", err)
			}
			done = true
		default:
			s.Bash(other.ID, "true", time.Minute)
			uses++
		}
	}
	if uses == 0 {
		t.Error("no command ran in another sandbox meanwhile")
	}
	t.Logf("the resume took %s, with %d commands in another sandbox", time.Since(begin), uses)
	w.link.rate.Store(0)
	count(sb.ID, 2)
}

// TestKilledWhileSaving kills the worker, and the server, while the memory of a sandbox is sent: the sandbox goes on, and the worker keeps no state.
func TestKilledWhileSaving(t *testing.T) {
	s, w := startWithWorker(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	count := remember(t, s.Bash, sb.ID)
	count(sb.ID, 1)
	s.Bash(sb.ID, "head -c 50000000 /dev/urandom >/dev/shm/memory", time.Minute)
	parts := filepath.Join(s.StateDir, "checkpoints", sb.ID, ".new-*", "*")
	n := 1
	for what, kill := range map[string]func(){
		"worker": func() { w.end(os.Kill); w.launch() },
		"server": func() { s.Kill(); s.Launch() },
	} {
		w.link.rate.Store(2 << 20)
		paused := make(chan error, 1)
		go func() {
			_, err := s.Sandboxes.Pause(t.Context(), sb.ID)
			paused <- err
		}()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // polling files of another process
			if found, _ := filepath.Glob(parts); len(found) > 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("no part of the saved state arrives")
			}
		}
		kill()
		w.link.rate.Store(0)
		if err := <-paused; err == nil {
			t.Errorf("%s: the pause succeeded", what)
		}
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // polling another process
			_, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/true"}, Timeout: time.Minute})
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the sandbox does not answer: %v", what, err)
			}
		}
		n++
		count(sb.ID, n)
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // polling files of another process
			left, _ := filepath.Glob(filepath.Join(w.state, "under-way", "*"))
			if len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s: the worker still has %q", what, left)
				break
			}
		}
	}
}
