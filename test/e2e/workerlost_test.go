package e2e_test

import (
	"os"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
)

// TestLostWorker kills a worker, whose processes go on, and does not start it again: its sandboxes end and say why. When the worker is back, what
// runs there has ended, and it gets sandboxes again.
func TestLostWorker(t *testing.T) {
	s, workers := startWithWorkers(t, 2, "--worker-lost-after", "30s", "--pool-size", "0")
	state := func(name string) string {
		w, err := s.Workers.Get(t.Context(), name)
		if err != nil {
			return err.Error()
		}
		return w.State
	}
	until(t, "both workers are connected", func() bool { return state("worker-1") == "connected" && state("worker-2") == "connected" })
	first, second := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"}), s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	a, b := workers[0], workers[1]
	if !a.has(first.ID) {
		a, b = b, a
	}
	if !a.has(first.ID) || !b.has(second.ID) {
		t.Fatal("the sandboxes are not on both workers")
	}
	name := map[*workerProcess]string{workers[0]: "worker-1", workers[1]: "worker-2"}[a]
	count := remember(t, s.Bash, second.ID)
	count(second.ID, 1)

	a.end(os.Kill)
	until(t, "the sandbox has ended", func() bool {
		sb, err := s.Sandboxes.Get(t.Context(), first.ID)
		return err == nil && sb.Cause != nil
	})
	if sb, err := s.Sandboxes.Get(t.Context(), first.ID); err != nil || sb.Cause.Code != "worker_lost" || !strings.Contains(sb.Cause.Message, "the worker "+name+" of the sandbox is lost") {
		t.Errorf("the sandbox is %+v, %v", sb.Cause, err)
	}
	if got := state(name); got != "lost" {
		t.Errorf("the worker is %s, want lost", got)
	}
	count(second.ID, 2)
	if !a.has(first.ID) || len(processesNaming(a.run)) == 0 {
		t.Error("nothing runs on the machine of the worker: it cannot come back with the sandbox")
	}

	a.launch()
	until(t, "the worker is back", func() bool { return state(name) == "connected" })
	if a.has(first.ID) {
		t.Error("the sandbox that has ended is still on its worker")
	}
	if third := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"}); !a.has(third.ID) {
		t.Error("the worker that is back gets no sandbox")
	}
	count(second.ID, 3)
}
