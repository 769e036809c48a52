package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
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
	e.cfg = e.cfg.PauseWait(testTimeout)
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

// A server that starts does not wait for the pauses that the server before began: it saves the files in the background,
// after it knows the executions that this ends.
func TestStartDoesNotWaitForPausesWithoutMemory(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const (
		count  = 24
		atOnce = 16 // pauses that the server goes on with
	)
	var names []string
	var running []sandbox.Execution
	for i := range count {
		name := fmt.Sprintf("p%d", i)
		names = append(names, name)
		s.run(lifecycle.CreateRequest{Name: name})
		s.write(name, "/a", "kept")
		running = append(running, s.startExecution(name, shell("exec sleep 1000")))
	}
	var pausing atomic.Int64
	died := make(chan struct{})
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call != "store.Transition pausing" {
			return nil
		}
		if pausing.Add(1) == count {
			s.driver.faults.die()
			close(died)
		}
		<-died // and no process is ended
		return nil
	})
	var pauses sync.WaitGroup
	for _, name := range names {
		pauses.Go(func() { _, _ = s.PauseFiles(t.Context(), s.caller, name) })
	}
	<-died
	s.kill()
	pauses.Wait()

	release := make(chan struct{})
	var saves, most atomic.Int64
	e.host.SetFaults(fake.Faults{Checkpoint: func(ctx context.Context, _ sandbox.ID) error {
		n := saves.Add(1)
		defer saves.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	s = e.prepare()
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context()) }()
	select {
	case err := <-started:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testTimeout):
		t.Fatal("the server waits for the pauses")
	}
	for _, name := range names {
		if sb := s.get(name); sb.State != sandbox.Pausing || !sb.FilesOnly {
			t.Errorf("after the start %s is %+v", name, sb)
		}
	}
	eventually(t, "pauses go on", func() bool { return saves.Load() >= atOnce })
	s.Sweep()
	cancelled := func(i int) {
		t.Helper()
		eventually(t, "the execution of "+names[i]+" is cancelled", func() bool {
			now, err := s.Executions().Get(t.Context(), s.caller, running[i].ID)
			return err == nil && now.State == sandbox.ExecutionCancelled && strings.Contains(now.Error, "without its memory")
		})
	}
	resumed := make(chan error, 1)
	go func() {
		_, err := s.Resume(t.Context(), s.caller, names[0], lifecycle.ResumeRequest{})
		resumed <- err
	}()
	close(release)
	if err := <-resumed; err != nil {
		t.Errorf("Resume = %v", err)
	}
	cancelled(0)
	for i := 1; i < count; i++ {
		if sb := s.reach(names[i], sandbox.Paused); !sb.FilesOnly {
			t.Errorf("%s: %+v", names[i], sb)
		}
		cancelled(i)
		s.reach(names[i], sandbox.Paused) // it was not resumed for that
	}
	if n := most.Load(); n > atOnce+1 { // the resume saved one
		t.Errorf("%d sandboxes were saved at once, want at most %d", n, atOnce+1)
	}
	for _, name := range names {
		if data := s.readFile(name, "/a"); data != "kept" {
			t.Errorf("the file of %s holds %q", name, data)
		}
	}
}

// A pause does not become one of the other kind because of an earlier attempt whose record had its effect after all.
func TestPauseAfterAnotherThatWasRecorded(t *testing.T) {
	for name, pauses := range map[string][2]bool{"with memory": {true, false}, "without memory": {false, true}} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t).start()
			s.run(lifecycle.CreateRequest{Name: "p"})
			x := s.startExecution("p", shell("while :; do sleep 0.01; done"))
			pause := func(filesOnly bool) (sandbox.Sandbox, error) {
				if filesOnly {
					return s.PauseFiles(t.Context(), s.caller, "p")
				}
				return s.Pause(t.Context(), s.caller, "p")
			}
			s.driver.faults.on(nil, func(_ int, call string) error {
				if call == "store.Transition pausing" {
					return errors.New("connection lost")
				}
				return nil
			})
			if _, err := pause(pauses[0]); err == nil {
				t.Fatal("the first pause succeeded")
			}
			s.driver.faults.on(nil, nil)
			if sb, err := pause(pauses[1]); sandbox.CodeOf(err) != sandbox.Unavailable || sb.State != sandbox.Running {
				t.Errorf("the other pause = %s, %v; want code unavailable", sb.State, err)
			}
			if now, err := s.Executions().Get(t.Context(), s.caller, x.ID); err != nil || now.State != sandbox.ExecutionRunning {
				t.Errorf("the execution: %+v, %v", now, err)
			}
			if sb, err := pause(pauses[1]); err != nil || sb.State != sandbox.Paused || sb.FilesOnly != pauses[1] {
				t.Errorf("the next pause = %+v, %v", sb, err)
			}
		})
	}
}

// wantFailures compares the events of pauses of "p" that failed.
func wantFailures(t *testing.T, s *server, want ...string) {
	t.Helper()
	events, err := s.Events(t.Context(), s.caller, "p", sandbox.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range events.Items {
		if ev.Type == sandbox.EventPauseFailed {
			got = append(got, ev.Message)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pauses failed: %q, want %q", got, want)
	}
}

// Processes are ended once for files that cannot be saved, not at each attempt.
func TestPauseFilesThatAreTooLarge(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	large := fake.Fail(sandbox.Errorf(sandbox.TooLarge, "the files are too large"))
	e.host.SetFaults(fake.Faults{Checkpoint: large, WriteLayer: large})
	for i := range 3 {
		x := s.startExecution("p", shell("while :; do sleep 0.01; done"))
		if _, err := s.PauseFiles(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.TooLarge {
			t.Fatalf("attempt %d: PauseFiles = %v, want code too_large", i, err)
		}
		now, err := s.Executions().Get(t.Context(), s.caller, x.ID)
		if err != nil || i > 0 && now.State != sandbox.ExecutionRunning {
			t.Errorf("attempt %d: the execution %+v, %v; want it running", i, now, err)
		}
	}
	const reason = "it could not be saved and goes on: "
	wantFailures(t, s, reason+"the files are too large")
	link := fake.Fail(sandbox.Errorf(sandbox.Unsupported, "the file is linked"))
	for _, fault := range []fake.Fault{link, link, large, large, link} {
		e.host.SetFaults(fake.Faults{WriteLayer: fault})
		if _, err := s.PauseFiles(t.Context(), e.caller, "p"); err == nil {
			t.Fatal("a pause that must be refused succeeded")
		}
	}
	wantFailures(t, s, reason+"the files are too large", reason+"the file is linked", reason+"the files are too large", reason+"the file is linked")

	// The event of another failure came between two refusals, and a refusal that could not be recorded is not taken for recorded.
	e.host.SetFaults(fake.Faults{Checkpoint: large, WriteLayer: link})
	if _, err := s.Pause(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.TooLarge {
		t.Errorf("Pause = %v, want code too_large", err)
	}
	s.driver.faults.setEvent(errors.New("connection lost"))
	for range 2 {
		if _, err := s.PauseFiles(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.Unsupported {
			t.Errorf("PauseFiles = %v, want code unsupported", err)
		}
		s.driver.faults.setEvent(nil)
	}
	wantFailures(t, s, reason+"the files are too large", reason+"the file is linked", reason+"the files are too large", reason+"the file is linked",
		reason+"the files are too large", reason+"the file is linked")
	var attempts atomic.Int64
	e.host.SetFaults(fake.Faults{WriteLayer: func(context.Context, sandbox.ID) error {
		if attempts.Add(1) < 3 {
			return sandbox.Wrap(sandbox.Unavailable, driver.ErrBusy, "other sandboxes are being read")
		}
		return nil
	}})
	s.pauseFiles("p") // when its turn to be read has come
}

// Saved files that turn out to be damaged are no mistake of the caller.
func TestResumeOfDamagedFiles(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/a", strings.Repeat("kept", 1000))
	s.pauseFiles("p")
	layers, err := filepath.Glob(filepath.Join(e.cfg.CheckpointDir, string(sb.ID), "*", "layer*"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("the layers %q, %v", layers, err)
	}
	whole, err := os.ReadFile(layers[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{"a part": whole[:1000], "no tar": bytes.Repeat([]byte("x"), 1024)} {
		if err := os.WriteFile(layers[0], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{}); sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: Resume = %v, want code unsupported", name, err)
		}
		s.reach("p", sandbox.Paused)
	}
	if err := os.WriteFile(layers[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s.resume("p")
}
