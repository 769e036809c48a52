package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

func (s *server) pauseFiles(ref string) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.PauseFiles(s.t.Context(), s.caller, ref)
	if err != nil || sb.State != sandbox.Paused || !sb.FilesOnly || sb.Saved == "" || sb.SavedBytes == 0 {
		s.t.Fatalf("PauseFiles(%q) = %+v, %v", ref, sb, err)
	}
	return sb
}

func TestPauseFiles(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	before := s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/a", "kept")
	clean := s.startExecution("p", shell("trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done"))
	eventually(t, "its trap is set", func() bool {
		now, err := s.Executions().Get(t.Context(), s.caller, clean.ID)
		return err == nil && now.Stdout.Bytes > 0
	})
	stubborn := s.startExecution("p", shell("trap '' TERM; while :; do sleep 0.01; done"))
	s.detach("p", "/bin/sh", "-c", "while :; do sleep 0.01; done")

	s.pauseFiles("p")
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes of a paused sandbox: %v, want none", ids)
	}
	for name, x := range map[string]sandbox.Execution{"clean": clean, "stubborn": stubborn} {
		now, err := s.Executions().Get(t.Context(), s.caller, x.ID)
		if err != nil || now.State != sandbox.ExecutionCancelled || now.ExitCode == nil || !strings.Contains(now.Error, "without its memory") {
			t.Errorf("the %s execution: %+v, %v; want it cancelled with the reason", name, now, err)
		}
		if name == "clean" && now.ExitCode != nil && *now.ExitCode != 4 {
			t.Errorf("its exit code is %d: it was not asked to end", *now.ExitCode)
		}
	}
	if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryRequire}); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("Resume with its memory = %v, want code unsupported", err)
	}
	s.Sweep()
	s.stop()

	s = e.start()
	if sb := s.reach("p", sandbox.Paused); !sb.FilesOnly {
		t.Errorf("after a restart %+v", sb)
	}
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
	sb := s.get("p")
	if sb.State != sandbox.Running || sb.ID != before.ID || sb.HostLabel != before.HostLabel || sb.ImageDigest != before.ImageDigest || sb.FilesOnly || sb.Saved != "" ||
		!strings.Contains(sb.MemoryLost, "without its memory") {
		t.Errorf("after the resume %+v, before %+v", sb, before)
	}
	want := []sandbox.EventType{sandbox.EventPausing, sandbox.EventPaused, sandbox.EventResuming, sandbox.EventResumedFromFiles}
	types := s.eventTypes("p")
	if got := slices.DeleteFunc(types, func(t sandbox.EventType) bool { return !slices.Contains(append(want, sandbox.EventResumed), t) }); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	s.pause("p") // and then with memory
	if sb := s.resume("p"); sb.MemoryLost != "" {
		t.Errorf("after a pause with memory: %+v", sb)
	}
	s.Sweep()
	if left := e.saved(string(sb.ID)); len(left) != 0 {
		t.Errorf("saved states of a running sandbox: %v", left)
	}
}

func TestPauseFilesThatFails(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/a", "kept")
	e.host.SetFaults(fake.Faults{Checkpoint: fake.Fail(sandbox.Errorf(sandbox.DiskFull, "the disk is full"))})
	if _, err := s.PauseFiles(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.DiskFull {
		t.Errorf("PauseFiles = %v, want code disk_full", err)
	}
	if sb := s.reach("p", sandbox.Running); sb.Saved != "" || sb.FilesOnly {
		t.Errorf("sandbox %+v", sb)
	}
	e.host.SetFaults(fake.Faults{})
	s.pauseFiles("p")
	for name, faults := range map[string]fake.Faults{"Create": {Create: fake.Fail(errors.New("broken"))}, "Start": {Start: fake.Fail(errors.New("broken"))}} {
		e.host.SetFaults(faults)
		if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{}); err == nil {
			t.Errorf("%s: Resume succeeded", name)
		}
		if sb := s.reach("p", sandbox.Paused); sb.Saved == "" || !sb.FilesOnly || len(e.host.ids()) != 0 {
			t.Errorf("%s: sandbox %+v, boxes %v", name, sb, e.host.ids())
		}
	}
	e.host.SetFaults(fake.Faults{})
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
}

// A box that the present runtime could not restore can be paused without memory.
func TestPauseFilesNeedsNoRestorableMemory(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	e.host.SetFaults(fake.Faults{CanRestore: otherBuild})
	if _, err := s.Pause(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("Pause = %v, want code unsupported", err)
	}
	s.pauseFiles("p")
	s.resume("p")
}

func TestForkAndSaveOfWhatWasPausedWithoutMemory(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/a", "kept")
	s.pauseFiles("p")
	children, err := s.Fork(t.Context(), e.caller, "p", lifecycle.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		if c.Err != nil || c.Sandbox.State != sandbox.Running || c.Sandbox.FilesOnly {
			t.Fatalf("a child: %+v", c)
		}
		if data := s.readFile(string(c.Sandbox.ID), "/a"); data != "kept" {
			t.Errorf("the file of a child holds %q", data)
		}
	}
	s.reach("p", sandbox.Paused)
	s.checkpoint("p", "c")
	s.write("p", "/a", "later")
	sb, err := s.Checkpoints().Restore(t.Context(), e.caller, "p", "c")
	if err != nil || sb.State != sandbox.Running || sb.MemoryLost == "" {
		t.Fatalf("Restore = %+v, %v", sb, err)
	}
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
}

func TestIdlePauseWithoutMemory(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "p", Timeouts: sandbox.Timeouts{Idle: 300 * time.Millisecond, OnIdle: sandbox.OnIdlePauseFiles}})
	if sb := s.reach("p", sandbox.Paused); !sb.FilesOnly {
		t.Errorf("an idle sandbox: %+v", sb)
	}
}

// A resume from another checkpoint that fails leaves the sandbox paused with that one, which has memory or not.
func TestGoingBackThatFailsKnowsWhatIsSaved(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.checkpoint("p", "memory")
	s.pauseFiles("p")
	s.checkpoint("p", "files")
	for _, c := range []string{"memory", "files", "memory"} {
		e.host.SetFaults(fake.Faults{Create: fake.Fail(errors.New("broken")), Restore: fake.Fail(errors.New("broken"))})
		if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "p", c); err == nil {
			t.Fatalf("%s: Restore succeeded", c)
		}
		if sb := s.reach("p", sandbox.Paused); sb.FilesOnly != (c == "files") {
			t.Errorf("paused with the checkpoint %q: %+v", c, sb)
		}
		e.host.SetFaults(fake.Faults{})
		children, err := s.Fork(t.Context(), e.caller, "p", lifecycle.ForkRequest{Count: 1})
		if err != nil || children[0].Err != nil {
			t.Errorf("fork of the checkpoint %q: %+v, %v", c, children, err)
		}
	}
}
