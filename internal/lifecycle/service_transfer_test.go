package lifecycle_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// impatient is a server that waits for no transfer.
func impatient(t *testing.T) *server {
	e := newEnv(t)
	e.cfg = e.cfg.TransferTimeout(time.Nanosecond)
	return e.start()
}

// noise is so many bytes that cannot be compressed.
func noise(n int) []byte {
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{7}).Read(data)
	return data
}

func (s *server) upload(ref, path string, content []byte) {
	s.t.Helper()
	opts := agentapi.WriteOptions{Parents: true}
	if _, err := s.Guest().Beneath("").WriteFile(s.t.Context(), s.caller, ref, path, bytes.NewReader(content), opts); err != nil {
		s.t.Fatalf("write %s: %v", path, err)
	}
}

func (s *server) checkpoint(ref, name string) {
	s.t.Helper()
	if _, err := s.Checkpoints().Create(s.t.Context(), s.caller, ref, name); err != nil {
		s.t.Fatal(err)
	}
}

// download begins to read a file and returns what came first and the rest.
func (s *server) download(ref, path string, offset, length int64) ([]byte, io.ReadCloser) {
	s.t.Helper()
	r, _, err := s.Guest().Beneath("").ReadFile(s.t.Context(), s.caller, ref, path, offset, length)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.Close() })
	first := make([]byte, 1000)
	if _, err := io.ReadFull(r, first); err != nil {
		s.t.Fatal(err)
	}
	return first, r
}

func TestDownloadGoesOnOverCheckpoints(t *testing.T) {
	s := impatient(t)
	s.run(lifecycle.CreateRequest{Name: "a"})
	content := noise(6 << 20)
	s.upload("a", "/srv/f", content)
	for _, c := range []struct{ offset, length int64 }{{0, -1}, {100, -1}, {100, 5 << 20}} {
		got, r := s.download("a", "/srv/f", c.offset, c.length)
		for range 2 {
			s.checkpoint("a", "")
			more := make([]byte, 2<<20)
			n, err := io.ReadFull(r, more)
			if err != nil {
				t.Fatalf("from %d: after %d bytes: %v", c.offset, len(got)+n, err)
			}
			got = append(got, more...)
		}
		rest, err := io.ReadAll(r)
		got = append(got, rest...)
		want := content[c.offset:]
		if c.length >= 0 {
			want = want[:c.length]
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("from %d, %d bytes: %d bytes came, the right ones %v, error %v; want %d", c.offset, c.length, len(got), bytes.Equal(got, want), err, len(want))
		}
	}
}

// cut breaks all connections to agents, and returns how many there were.
func (s *server) cut() (n int) {
	s.t.Helper()
	f := s.driver.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
	n, f.open = len(f.open), nil
	return n
}

func TestDownloadGoesOnAfterBrokenConnections(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	content := noise(12 << 20)
	s.upload("a", "/srv/f", content)
	got, r := s.download("a", "/srv/f", 0, -1)
	for range 2 {
		if s.cut() == 0 {
			t.Fatal("there was no connection to break")
		}
		more := make([]byte, 5<<20) // more than the connection could have under way
		n, err := io.ReadFull(r, more)
		if got = append(got, more[:n]...); err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
	}
	rest, err := io.ReadAll(r)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came, the right ones %v, error %v; want %d", len(got), bytes.Equal(got, content), err, len(content))
	}
}

// TestDownloadFromAnAgentThatIsGone has an agent that cannot be dialed again.
func TestDownloadFromAnAgentThatIsGone(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.upload("a", "/srv/f", noise(12<<20))
	_, r := s.download("a", "/srv/f", 0, -1)
	f := s.driver.faults
	var dials atomic.Int64
	f.mu.Lock()
	f.dial = func() (net.Conn, error) { dials.Add(1); return nil, net.ErrClosed }
	f.mu.Unlock()
	s.cut()
	n, err := io.Copy(io.Discard, r)
	if sandbox.CodeOf(err) != sandbox.AgentUnreachable || dials.Load() == 0 {
		t.Errorf("after %d more bytes and %d dials: %v, want code agent_unreachable", n, dials.Load(), err)
	}
}

func TestDownloadThatCannotGoOn(t *testing.T) {
	s := impatient(t)
	s.run(lifecycle.CreateRequest{Name: "a"})
	for _, c := range []struct {
		name string
		do   func()
		want sandbox.Code
	}{
		{"paused", func() { s.pause("a") }, sandbox.Unavailable},
		{"paused and resumed", func() { s.pause("a"); s.resume("a") }, sandbox.Unavailable},
		{"other file", func() { s.upload("a", "/srv/f", []byte("short")); s.checkpoint("a", "") }, sandbox.Conflict},
		{"removed file", func() {
			if err := s.Guest().Beneath("").Remove(t.Context(), s.caller, "a", "/srv/f", false); err != nil {
				t.Fatal(err)
			}
			s.checkpoint("a", "")
		}, sandbox.FileNotFound},
	} {
		s.upload("a", "/srv/f", noise(6<<20))
		_, r := s.download("a", "/srv/f", 0, -1)
		c.do()
		n, err := io.Copy(io.Discard, r)
		if _, again := r.Read(make([]byte, 1)); sandbox.CodeOf(err) != c.want || sandbox.CodeOf(again) != c.want {
			t.Errorf("%s: after %d more bytes: %v, then %v, want code %s", c.name, n, err, again, c.want)
		}
	}
}

func TestArchiveThatBreaksOff(t *testing.T) {
	s := impatient(t)
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.upload("a", "/srv/d/f", noise(6<<20))
	r, err := s.Guest().Beneath("").DownloadArchive(t.Context(), s.caller, "a", "/srv/d", "tar")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	s.checkpoint("a", "")
	if n, err := io.Copy(io.Discard, r); sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "checkpoint") {
		t.Errorf("archive out: after %d more bytes: %v, want unavailable, saying why", n, err)
	}
}

func TestUploadThatBreaksOff(t *testing.T) {
	s := impatient(t)
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.upload("a", "/srv/f", []byte("before"))
	for what, upload := range map[string]func(io.Reader) error{
		"file": func(r io.Reader) error {
			_, err := s.Guest().Beneath("").WriteFile(t.Context(), s.caller, "a", "/srv/f", r, agentapi.WriteOptions{})
			return err
		},
		"archive": func(r io.Reader) error {
			return s.Guest().Beneath("").UploadArchive(t.Context(), s.caller, "a", "/srv/d", "tar", r)
		},
	} {
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- upload(r)
			_ = r.CloseWithError(io.ErrClosedPipe)
		}()
		if _, err := w.Write([]byte("new")); err != nil {
			t.Fatal(err)
		}
		s.checkpoint("a", "")
		if err := <-done; sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "checkpoint") {
			t.Errorf("%s: %v, want unavailable, saying why", what, err)
		}
	}
	got, _, err := s.Guest().Beneath("").ReadFile(t.Context(), s.caller, "a", "/srv/f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Close() }()
	if data, err := io.ReadAll(got); string(data) != "before" || err != nil {
		t.Errorf("the file after the upload that broke off: %q, %v", data, err)
	}
}

// TestSavingWaitsForTransfers begins an upload and a pause, and ends the upload
// once the pause has the sandbox.
func TestSavingWaitsForTransfers(t *testing.T) {
	e := newEnv(t)
	e.cfg = e.cfg.TransferTimeout(time.Minute)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	r, w := io.Pipe()
	uploaded, paused := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Guest().Beneath("").WriteFile(t.Context(), s.caller, "a", "/srv/f", r, agentapi.WriteOptions{Parents: true})
		uploaded <- err
		_ = r.CloseWithError(io.ErrClosedPipe)
	}()
	if _, err := w.Write([]byte("one ")); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := s.Pause(t.Context(), s.caller, "a")
		paused <- err
	}()
	s.reach("a", sandbox.Pausing)
	if _, err := w.Write([]byte("two")); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := <-uploaded; err != nil {
		t.Errorf("upload during a pause: %v", err)
	}
	if err := <-paused; err != nil {
		t.Errorf("pause during an upload: %v", err)
	}
	got, rest := s.downloadAll("a", "/srv/f")
	if string(got) != "one two" || rest != nil {
		t.Errorf("what was uploaded: %q, %v", got, rest)
	}
}

func (s *server) downloadAll(ref, path string) ([]byte, error) {
	s.t.Helper()
	r, _, err := s.Guest().Beneath("").ReadFile(s.t.Context(), s.caller, ref, path, 0, -1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}

func TestWatchOverCheckpoints(t *testing.T) {
	s := impatient(t)
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.upload("a", "/srv/d/f", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := s.Guest().Watch(ctx, s.caller, "a", "/srv/d", false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	event := func() (agentapi.FileEvent, error) {
		e, err := w.Next()
		for err == nil && e.Type == agentapi.FileAttributes {
			e, err = w.Next() // as making a directory may do too
		}
		return e, err
	}
	next := func(want agentapi.FileEventType, path string) {
		t.Helper()
		e, err := event()
		if err != nil || e.Type != want || e.Path != path {
			t.Fatalf("event %+v, %v, want %s %s", e, err, want, path)
		}
	}
	mkdir := func(path string) {
		t.Helper()
		if err := s.Guest().Beneath("").Mkdir(ctx, s.caller, "a", agentapi.MkdirRequest{Path: path}); err != nil {
			t.Fatal(err)
		}
	}
	next(agentapi.WatchReady, "")
	for i := range 2 {
		path := fmt.Sprintf("/srv/d/%d", i)
		s.checkpoint("a", "")
		next(agentapi.WatchOverflow, "")
		mkdir(path)
		next(agentapi.FileCreated, path)
	}
	s.pause("a")
	if e, err := event(); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("watch of a sandbox that was paused: %+v, %v, want unavailable", e, err)
	}
}

// TestTypedInputIsNeitherLostNorDoubled types on an execution's terminal while the
// sandbox is saved, paused and resumed.
func TestTypedInputIsNeitherLostNorDoubled(t *testing.T) {
	s := impatient(t)
	s.run(lifecycle.CreateRequest{Name: "a"})
	e := s.startExecution("a", execution.Request{
		Argv: []string{"/bin/sh", "-c", "stty -echo -onlcr; echo ready; cat; exit 3"}, TTY: &agentapi.Size{Rows: 24, Cols: 80},
	})
	term, err := s.Executions().Terminal(t.Context(), s.caller, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the terminal is ready", func() bool {
		now, err := s.Executions().Get(t.Context(), s.caller, e.ID)
		return err == nil && now.Stdout.Bytes > 0
	})
	const lines = 4000
	var want strings.Builder
	want.WriteString("ready\n")
	at := make(chan struct{})
	typed := make(chan error, 1)
	go func() {
		for i := range lines {
			if i%1000 == 500 {
				at <- struct{}{}
			}
			if err := term.Write(t.Context(), fmt.Appendf(nil, "line %d %s\n", i, strings.Repeat("x", 200))); err != nil {
				typed <- err
				return
			}
		}
		typed <- term.Write(t.Context(), []byte{4}) // the end of file
	}()
	for i := range lines {
		fmt.Fprintf(&want, "line %d %s\n", i, strings.Repeat("x", 200))
	}
	<-at
	s.checkpoint("a", "")
	<-at
	s.pause("a")
	s.resume("a")
	<-at
	s.checkpoint("a", "")
	<-at
	if err := <-typed; err != nil {
		t.Errorf("type: %v", err)
	}
	if e := s.ended(e.ID); e.ExitCode == nil || *e.ExitCode != 3 {
		t.Errorf("execution %+v, want exit code 3", e)
	}
	if got := s.read(e.Stdout.ID, 0); got != want.String() {
		t.Errorf("%d bytes of output, want the %d that were typed; they differ from byte %d on", len(got), want.Len(), differ(got, want.String()))
	}
	if err := term.Write(t.Context(), []byte("x")); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("typing after the end: %v, want conflict", err)
	}
}

// differ returns where two texts begin to differ.
func differ(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
