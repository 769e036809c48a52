package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestTransfersOverCheckpoints saves a sandbox while files are on their way, with
// clients that are slower than the saving waits.
func TestTransfersOverCheckpoints(t *testing.T) {
	s := testserver.StartSmall(t)
	transfersOver(t, s, func(id string) []string {
		if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), id, "middle"); err != nil {
			t.Fatal(err)
		}
		return nil
	})
}

// TestTransfersOverAFork forks a sandbox while files are on their way: the copy has the whole file and no part of another.
func TestTransfersOverAFork(t *testing.T) {
	s := testserver.StartSmall(t)
	transfersOver(t, s, func(id string) []string {
		forked, err := s.Sandboxes.Fork(t.Context(), id, client.ForkOptions{Count: 1})
		if err != nil || forked[0].Err != nil {
			t.Fatal(err, forked)
		}
		return []string{forked[0].Sandbox.ID}
	})
}

// transfersOver saves a sandbox while a file and an archive are read and another file is written. save returns the copies that
// it made of the sandbox.
func transfersOver(t *testing.T, s *testserver.Server, save func(id string) (copies []string)) {
	t.Helper()
	sb := s.MustCreate(client.CreateOptions{Image: image})
	content := make([]byte, 32<<20)
	rand.NewChaCha8([32]byte{3}).Read(content)
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/srv/d/f", bytes.NewReader(content), client.WriteOptions{Parents: true}); err != nil {
		t.Fatal(err)
	}

	file, err := s.Sandboxes.Files.Read(t.Context(), sb.ID, "/srv/d/f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := make([]byte, 1000)
	if _, err := io.ReadFull(file, got); err != nil {
		t.Fatal(err)
	}
	archive, err := s.Sandboxes.Files.DownloadArchive(t.Context(), sb.ID, "/srv/d", "tar")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if _, err := io.ReadFull(archive, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	upload, feed := io.Pipe()
	uploaded := make(chan error, 1)
	go func() {
		_, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/srv/d/new", upload, client.WriteOptions{})
		uploaded <- err
		_ = upload.CloseWithError(io.ErrClosedPipe)
	}()
	if _, err := feed.Write(content[:1<<20]); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, "until [ $(ls -A /srv/d | wc -l) = 2 ]; do sleep 0.05; done", time.Minute) // it is being written

	copies := save(sb.ID)
	rest, err := io.ReadAll(file)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, content) {
		t.Errorf("file: %d bytes, the right ones %v, error %v; want %d", len(got), bytes.Equal(got, content), err, len(content))
	}
	if n, err := io.Copy(io.Discard, archive); err == nil {
		t.Errorf("archive: %d bytes and its end, want it to break off", n)
	}
	if err := <-uploaded; !client.IsCode(err, client.Unavailable) {
		t.Errorf("upload: %v, want unavailable", err)
	}
	want := fmt.Sprintf("f\n%x  -\n", sha256.Sum256(content))
	for _, id := range append(copies, sb.ID) {
		res := s.Bash(id, "for i in $(seq 1200); do [ \"$(ls -A /srv/d)\" = f ] && break; sleep 0.05; done; ls -A /srv/d; sha256sum </srv/d/f", 2*time.Minute)
		if string(res.Stdout) != want {
			t.Errorf("files of %s after an upload that broke off: %q, want f alone and whole: %q", id, res.Stdout, want)
		}
	}
}

// TestWatchOverACheckpoint watches over one, and into a pause.
func TestWatchOverACheckpoint(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	s.Bash(sb.ID, "mkdir /srv/w", time.Minute)
	w, err := s.Sandboxes.Files.Watch(t.Context(), sb.ID, "/srv/w", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, ""); err != nil {
		t.Fatal(err)
	}
	if e, err := w.Next(); err != nil || e.Type != client.FileOverflow {
		t.Fatalf("after a checkpoint: %+v, %v, want overflow", e, err)
	}
	s.Bash(sb.ID, "mkdir /srv/w/d", time.Minute)
	if e, err := w.Next(); err != nil || e.Type != client.FileCreated || e.Path != "/srv/w/d" {
		t.Fatalf("after a directory was made: %+v, %v, want it created", e, err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	for {
		e, err := w.Next()
		if err == nil && e.Type == client.FileAttributes {
			continue // of the new directory
		}
		if !client.IsCode(err, client.Unavailable) {
			t.Errorf("after a pause: %+v, %v, want unavailable", e, err)
		}
		return
	}
}

// TestTypingOverPausesAndBack types on the terminal of an execution.
func TestTypingOverPausesAndBack(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	e, err := s.Executions.Start(t.Context(), sb.ID, client.Command{
		Shell: "stty -echo; echo ready; while read line; do echo $line >>/srv/log; done",
	}, client.ExecutionOptions{TTY: &client.Size{Rows: 24, Cols: 80}})
	if err != nil {
		t.Fatal(err)
	}
	term, err := s.Executions.Attach(t.Context(), sb.ID, e.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	shown := newSignalled()
	go func() { _, _ = term.Copy(shown, io.Discard) }() // until it is closed
	ready, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := shown.await(ready, len("ready")); err != nil {
		t.Fatalf("the terminal is not ready: %v", err)
	}
	typed := func(text string) {
		t.Helper()
		if _, err := io.WriteString(term, text); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(want string) {
		t.Helper()
		res := s.Bash(sb.ID, "for i in $(seq 2000); do [ \"$(cat /srv/log)\" = \""+want+"\" ] && break; sleep 0.05; done; cat /srv/log", time.Minute)
		if string(res.Stdout) != want+"\n" {
			t.Fatalf("what was read: %q, want %q", res.Stdout, want)
		}
	}
	typed("one\n")
	logged("one")
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "one"); err != nil {
		t.Fatal(err)
	}
	typed("two\n")
	logged("one\ntwo")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	typed("three\n") // the input waits until it is resumed
	logged("one\ntwo\nthree")
	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "one"); err != nil {
		t.Fatal(err)
	}
	typed("four\n")
	logged("one\nfour")
}

// TestRequestUnderWayAtACheckpoint sends one to a server that is reached through
// the agent alone, and saves the sandbox before it is answered.
func TestRequestUnderWayAtACheckpoint(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	const server = `
import http.server, os, time
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open("/tmp/asked", "w").close()
        while not os.path.exists("/tmp/saved"): time.sleep(0.02)
        self.send_response(200); self.end_headers()
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), H).serve_forever()
`
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/server.py", strings.NewReader(server), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, `setsid nohup python3 /tmp/server.py >/dev/null 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.05; done`, time.Minute)
	type answer struct {
		status               int
		code, retry, problem string
		err                  error
	}
	visit := func(method string) answer {
		req, err := http.NewRequestWithContext(t.Context(), method, sb.URL, nil)
		if err != nil {
			return answer{err: err}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return answer{err: err}
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.Header.Get("X-Modbox-Error"), resp.Header.Get("Retry-After"), string(body), err}
	}
	answered := make(chan answer, 1)
	go func() { answered <- visit(http.MethodPost) }()
	s.Bash(sb.ID, "until [ -e /tmp/asked ]; do sleep 0.05; done", time.Minute)
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, ""); err != nil {
		t.Fatal(err)
	}
	a := <-answered
	if a.err != nil || a.status != http.StatusServiceUnavailable || a.code != "unavailable" || a.retry == "" || !strings.Contains(a.problem, "try again") {
		t.Errorf("request under way = %+v, want 503 with code unavailable and when to try again", a)
	}
	s.Bash(sb.ID, "touch /tmp/saved", time.Minute)
	if a := visit(http.MethodGet); a.err != nil || a.status != http.StatusOK {
		t.Errorf("the next request = %+v, want 200", a)
	}
}
