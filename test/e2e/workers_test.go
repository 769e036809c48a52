package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// has reports whether a worker has the box of a sandbox.
func (w *workerProcess) has(id string) bool {
	found, _ := filepath.Glob(filepath.Join(w.run, "boxes", id))
	return len(found) > 0
}

// until calls f until it reports true. If it does not within 5 minutes, the test fails, with what more returns.
func until(t *testing.T, what string, f func() bool, more ...func() string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !f(); time.Sleep(20 * time.Millisecond) { // polling another process
		if time.Now().After(end) {
			for _, text := range more {
				what += ": " + text()
			}
			t.Fatalf("not within 5 minutes: %s", what)
		}
	}
}

// reaches reports whether a command runs in a sandbox.
func reaches(t *testing.T, s *testserver.Server, id string) bool {
	out, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/echo", "here"}, Timeout: time.Minute})
	return err == nil && string(out.Stdout) == "here\n"
}

// TestWorkers runs sandboxes on two workers, kills one, and moves the memory of a sandbox from one to the other.
func TestWorkers(t *testing.T) {
	s, workers := startWithWorkers(t, 2)
	until(t, "both workers are connected", func() bool { return strings.Count(s.Log(), "a worker is connected") == 2 })
	var ids []string
	on := map[*workerProcess]string{}
	for len(on) < len(workers) && len(ids) < 6 {
		sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
		ids = append(ids, sb.ID)
		for _, w := range workers {
			if w.has(sb.ID) {
				on[w] = sb.ID
			}
		}
	}
	a, b := workers[0], workers[1]
	first, second := on[a], on[b]
	if first == "" || second == "" {
		t.Fatalf("of %d sandboxes, the workers have %q and %q", len(ids), first, second)
	}
	count := remember(t, s.Bash, first)
	count(first, 1)
	other := remember(t, s.Bash, second)
	other(second, 1)

	a.end(os.Kill)
	other(second, 2)
	soon, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the server waits 30 seconds for the worker
	if _, err := s.Sandboxes.Exec(soon, first, client.Command{Argv: []string{"/bin/true"}, Timeout: time.Minute}); err == nil {
		t.Error("a sandbox answers whose worker is away")
	}
	cancel()
	created := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	if !b.has(created.ID) {
		t.Error("a sandbox is not on the worker that is there")
	}
	a.launch()
	until(t, "the sandbox answers again", func() bool { return reaches(t, s, first) })
	count(first, 2)

	if _, err := s.Sandboxes.Pause(t.Context(), first); err != nil {
		t.Fatalf("pause: %v", err)
	}
	a.end(os.Kill)
	if _, err := s.Sandboxes.Resume(t.Context(), first, client.ResumeOptions{Memory: "require"}); err != nil {
		t.Fatalf("resume on the other worker: %v", err)
	}
	if !b.has(first) {
		t.Error("the sandbox was not resumed on the other worker")
	}
	count(first, 3)

	s.Kill()
	s.Launch() // without the first worker
	until(t, "the sandbox answers after a restart", func() bool { return reaches(t, s, second) })
	other(second, 3)
	count(first, 4)
	before, _ := filepath.Glob(filepath.Join(a.run, "boxes", "*"))
	a.launch()
	until(t, "the first worker is back", func() bool { return strings.Count(s.Log(), "a worker is connected") >= 5 })
	sandboxes := append(ids, created.ID)
	for _, box := range before { // the server before had it in its pool
		if id := filepath.Base(box); id == first || !slices.Contains(sandboxes, id) {
			until(t, "a box without a sandbox is destroyed on the first worker", func() bool { return !a.has(id) })
		}
	}
	for _, id := range sandboxes {
		until(t, "each sandbox answers", func() bool { return reaches(t, s, id) })
	}
}

// TestWorkerThatLeaves checks that the sandboxes of a worker that is being ended go on with their memory on another, and that the worker is used
// again when it is back.
func TestWorkerThatLeaves(t *testing.T) {
	s, workers := startWithWorkers(t, 2)
	connections := func(n int) {
		t.Helper()
		until(t, "the workers are connected", func() bool { return strings.Count(s.Log(), "a worker is connected") >= n })
	}
	connections(2)
	for _, w := range workers {
		w.end(os.Interrupt)
		w.args = append(w.args, "--drain-timeout", "10m")
		w.launch()
	}
	connections(4)
	sb, paused := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"}), s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	a, b := workers[0], workers[1]
	if !a.has(sb.ID) {
		a, b = b, a
	}
	count := remember(t, s.Bash, sb.ID)
	count(sb.ID, 1)
	if _, err := s.Sandboxes.Pause(t.Context(), paused.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	a.end(syscall.SIGTERM)
	if a.has(sb.ID) || !b.has(sb.ID) {
		t.Errorf("the worker that left has the sandbox: %v, the other: %v", a.has(sb.ID), b.has(sb.ID))
	}
	count(sb.ID, 2)
	if p, err := s.Sandboxes.Get(t.Context(), paused.ID); err != nil || p.State != "paused" {
		t.Errorf("the paused sandbox is %+v, %v", p, err)
	}
	a.launch()
	connections(5)
	if created := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"}); !a.has(created.ID) {
		t.Error("a worker that is back gets no sandbox")
	}
	count(sb.ID, 3)

	s.Kill()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.end(syscall.SIGTERM)
	}()
	s.Launch() // while the worker waits for it
	<-ended
	if b.has(sb.ID) || !a.has(sb.ID) {
		t.Errorf("after a restart of the server, the worker that left has the sandbox: %v, the other: %v", b.has(sb.ID), a.has(sb.ID))
	}
	count(sb.ID, 4)
	a.end(os.Kill)
	for _, w := range workers {
		w.args = w.args[:len(w.args)-2] // after the end of the server it would wait for another
		w.launch()
	}
}
