package crash_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestLostSandboxGoesOnFromItsAutomaticCheckpoint kills the gVisor of a sandbox, kills it
// again before the next checkpoint, and kills it with the server as a restart of the host does.
// Each time memory and files are as at the checkpoint.
func TestLostSandboxGoesOnFromItsAutomaticCheckpoint(t *testing.T) {
	t.Parallel() // it waits for a minute
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{
		Image: "modbox/base", CheckpointInterval: time.Minute, Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"},
	})
	other := s.MustCreate(client.CreateOptions{Image: "modbox/base", CheckpointInterval: time.Hour})
	// The process has its first line in memory only, and answers with it when the file ask is there.
	line := `echo old > /tmp/file; (setsid sh -c 'x=secret; while true; do if [ -e /tmp/ask ]; then rm /tmp/ask; echo $x > /tmp/answer; fi; sleep 0.5; done' </dev/null >/dev/null 2>&1 &)`
	if res := s.Bash(sb.ID, line, time.Minute); res.ExitCode != 0 {
		t.Fatalf("start: %+v", res)
	}
	get := func() *client.Sandbox {
		t.Helper()
		now, err := s.Sandboxes.Get(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	until(t, "the automatic checkpoint", func() bool { return get().LastCheckpointAt != nil })
	interval := time.Hour // no other checkpoint comes between
	if _, err := s.Sandboxes.Update(t.Context(), sb.ID, client.UpdateOptions{CheckpointInterval: &interval}); err != nil {
		t.Fatal(err)
	}
	rolledBack := func() (n int) {
		t.Helper()
		for ev, err := range s.Sandboxes.Events(sb.ID, client.EventsOptions{}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Type == "rolled_back" && ev.Data["checkpoint_at"] != "" {
				n++
			}
		}
		return n
	}
	killBoxes := func() {
		for _, pid := range s.BoxProcesses() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another
		}
	}
	for i, lose := range []func(){
		killBoxes, killBoxes,
		func() {
			s.Kill()
			s.KillBoxes()
			if err := os.RemoveAll(filepath.Join(s.RunDir, "boxes")); err != nil { // it is on tmpfs
				t.Fatal(err)
			}
			s.Launch()
		},
	} {
		if res := s.Bash(sb.ID, "echo new > /tmp/file; touch /tmp/after", time.Minute); res.ExitCode != 0 {
			t.Fatalf("write: %+v", res)
		}
		lose()
		until(t, "the sandbox to go on", func() bool { return get().State == client.Running && rolledBack() == i+1 })
		res := s.Bash(sb.ID, "touch /tmp/ask; while [ ! -s /tmp/answer ]; do sleep 0.05; done; cat /tmp/file /tmp/answer; rm /tmp/answer; ls /tmp", time.Minute)
		if got := string(res.Stdout); !strings.HasPrefix(got, "old\nsecret\n") || strings.Contains(got, "after") {
			t.Errorf("loss %d: the sandbox has %q, want files and memory of the checkpoint", i+1, got)
		}
	}
	ended, err := s.Sandboxes.Wait(t.Context(), other.ID, client.Failed)
	if err != nil || ended.Cause == nil || ended.Cause.Code != "exited" {
		t.Errorf("a sandbox without a checkpoint: %+v, %v, want it ended", ended, err)
	}
	wantNothingQuarantined(t, s)
}
