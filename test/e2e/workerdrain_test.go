package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
)

// boxes returns the ids of the boxes on a worker.
func (w *workerProcess) boxes() (ids []string) {
	found, _ := filepath.Glob(filepath.Join(w.run, "boxes", "*"))
	for _, path := range found {
		ids = append(ids, filepath.Base(path))
	}
	return ids
}

// TestDrainAndRemoveWorker drains workers over the API, and starts a server after a worker with sandboxes was removed beside it.
func TestDrainAndRemoveWorker(t *testing.T) {
	s, workers := startWithWorkers(t, 2, "--pool-size", "2")
	a, b := workers[0], workers[1]
	draining := func(ref string, on bool) {
		t.Helper()
		if w, err := s.Workers.Update(t.Context(), ref, client.WorkerChanges{Draining: &on}); err != nil || w.Draining != on {
			t.Fatalf("drain %s: %+v, %v", ref, w, err)
		}
	}
	list := func() []client.Worker {
		t.Helper()
		all, err := s.Workers.List().Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	create := func(on *workerProcess) string {
		t.Helper()
		sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
		if !on.has(sb.ID) {
			t.Errorf("the sandbox %s is not on the worker that is not being drained", sb.ID)
		}
		return sb.ID
	}
	until(t, "both workers are connected", func() bool { return len(list()) == 2 })
	until(t, "the pool is full", func() bool { return len(a.boxes())+len(b.boxes()) == 2 })

	draining("worker-2", true)
	first := create(a)
	until(t, "the pool has no boxes on the worker that is being drained", func() bool {
		w, err := s.Workers.Get(t.Context(), "worker-2")
		return err == nil && w.Sandboxes == 0 && len(b.boxes()) == 0
	})
	create(a)
	draining("worker-2", false)
	draining("worker-1", true)
	last := create(b)
	var failed *client.Error
	if err := s.Workers.Delete(t.Context(), "worker-1", false); !errors.As(err, &failed) || failed.Code != client.Conflict {
		t.Errorf("the removal of a worker with sandboxes: %v, want conflict", err)
	}

	s.Kill()
	a.end(os.Kill)
	if _, stderr, code := run(t, s, "", "workers", "rm", "worker-1", "--state-dir", s.StateDir); code != 0 {
		t.Fatalf("modbox workers rm: %d, %s", code, stderr)
	}
	s.Launch()
	until(t, "a sandbox of the other worker answers", func() bool { return reaches(t, s, last) })
	until(t, "a sandbox of the worker that was removed has ended", func() bool {
		sb, err := s.Sandboxes.Get(t.Context(), first)
		return err == nil && (sb.State == client.Failed || sb.State == client.Destroyed)
	})
	if all := list(); len(all) != 1 || all[0].Name != "worker-2" || all[0].State != "connected" {
		t.Errorf("workers %+v", all)
	}
	create(b)
	a.launch()
	until(t, "the worker that was removed has no boxes, and is refused", func() bool {
		return len(a.boxes()) == 0 && strings.Contains(s.Log(), "was removed")
	})
}
