package lifecycle_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

var otherBuild = fake.Fail(sandbox.Errorf(sandbox.Unsupported, "it was made by another build"))

// pausedHere makes the sandbox "p" with a file and pauses it.
func pausedHere(s *server) {
	s.t.Helper()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/a", "kept")
	s.pause("p")
}

func TestResumeFromFiles(t *testing.T) {
	for name, faults := range map[string]fake.Faults{
		"NotRestorable": {CanRestore: otherBuild},
		"Damaged":       {Restore: fake.Fail(sandbox.Errorf(sandbox.Unsupported, "what was saved is damaged"))},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.start()
			pausedHere(s)
			e.host.SetFaults(faults)
			_, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryRequire})
			if sandbox.CodeOf(err) != sandbox.Unsupported {
				t.Errorf("Resume with its memory = %v, want code unsupported", err)
			}
			s.reach("p", sandbox.Paused)
			before := s.get("p")
			ctx, wakes := guest.NoteWakes(t.Context())
			if data := s.readFileIn(ctx, "p", "/a"); data != "kept" {
				t.Errorf("the file holds %q", data)
			}
			if !wakes.Resumed() || !wakes.MemoryLost() {
				t.Errorf("resumed %v, memory lost %v, want both", wakes.Resumed(), wakes.MemoryLost())
			}
			sb := s.get("p")
			if sb.ID != before.ID || sb.HostLabel != before.HostLabel || sb.MemoryLost == "" || sb.ImageDigest != before.ImageDigest || sb.Saved != "" {
				t.Errorf("after the resume: %+v, before: %+v", sb, before)
			}
			if types := s.eventTypes("p"); !slices.Contains(types, sandbox.EventResumedFromFiles) || slices.Contains(types, sandbox.EventResumed) {
				t.Errorf("events: %v", types)
			}
			e.host.SetFaults(fake.Faults{})

			// From now on it is a sandbox like others, and a later resume has memory.
			s.pause("p")
			s.resume("p")
			if data := s.readFile("p", "/a"); data != "kept" || s.get("p").MemoryLost != "" {
				t.Errorf("after another pause: the file holds %q, sandbox %+v", data, s.get("p"))
			}
		})
	}
}

func TestResumeFromFilesByWish(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	pausedHere(s)
	if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: "forget"}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Resume with an unknown wish = %v, want code invalid", err)
	}
	sb, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard})
	if err != nil || sb.State != sandbox.Running || sb.MemoryLost == "" {
		t.Errorf("Resume without its memory = %+v, %v", sb, err)
	}
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
}

// Going back to a checkpoint from before.
func TestRestoreAcrossAResumeFromFiles(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/a", "old")
	if _, err := s.Checkpoints().Create(t.Context(), e.caller, "p", "c"); err != nil {
		t.Fatal(err)
	}
	first := s.get("p").ImageDigest
	s.write("p", "/a", "new")
	s.pause("p")
	if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard}); err != nil {
		t.Fatal(err)
	}
	sb, err := s.Checkpoints().Restore(t.Context(), e.caller, "p", "c")
	if err != nil || sb.ImageDigest != first || sb.MemoryLost != "" {
		t.Fatalf("RestoreCheckpoint = %+v, %v", sb, err)
	}
	if data := s.readFile("p", "/a"); data != "old" {
		t.Errorf("the file holds %q", data)
	}
	// And into a sandbox whose memory cannot be restored.
	e.host.SetFaults(fake.Faults{CanRestore: otherBuild})
	sb, err = s.Checkpoints().Restore(t.Context(), e.caller, "p", "c")
	if err != nil || sb.MemoryLost == "" {
		t.Errorf("RestoreCheckpoint without memory = %+v, %v", sb, err)
	}
	if data := s.readFile("p", "/a"); data != "old" {
		t.Errorf("the file holds %q", data)
	}
}

func TestResumeFromFilesThatFails(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	pausedHere(s)
	for name, faults := range map[string]fake.Faults{
		"Create": {CanRestore: otherBuild, Create: fake.Fail(errors.New("broken"))},
		"Start":  {CanRestore: otherBuild, Start: fake.Fail(errors.New("broken"))},
	} {
		e.host.SetFaults(faults)
		if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{}); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: Resume = %v, want code unavailable", name, err)
		}
		e.host.SetFaults(fake.Faults{})
		if sb := s.reach("p", sandbox.Paused); sb.Saved == "" || len(e.host.ids()) != 0 {
			t.Errorf("%s: sandbox %+v, boxes %v", name, sb, e.host.ids())
		}
	}
	s.resume("p")
	if sb := s.get("p"); sb.MemoryLost != "" {
		t.Errorf("memory lost after all: %+v", sb)
	}
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
}

// A sandbox that could not be restored is not stopped.
func TestPauseThatCouldNotBeResumedIsRefused(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/tmp/a", "kept")
	e.host.SetFaults(fake.Faults{CanRestore: otherBuild})
	_, err := s.Pause(t.Context(), e.caller, "p")
	if sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "another build") {
		t.Errorf("Pause = %v, want code unsupported and the reason", err)
	}
	if sb := s.reach("p", sandbox.Running); sb.Saved != "" {
		t.Errorf("sandbox %+v", sb)
	}
	if data := s.readFile("p", "/tmp/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
}

func TestForkOfWhatCannotBeBroughtBackSaysWhatToDo(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	pausedHere(s)
	e.host.SetFaults(fake.Faults{CanRestore: otherBuild})
	_, err := s.Fork(t.Context(), e.caller, "p", lifecycle.ForkRequest{Count: 2})
	if sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "another build") || !strings.Contains(err.Error(), "resume it") {
		t.Errorf("Fork = %v, want code unsupported, the reason and what to do", err)
	}
	page, err := s.List(t.Context(), e.caller, lifecycle.Filter{})
	if err != nil || len(page.Items) != 1 || page.Items[0].State != sandbox.Paused {
		t.Errorf("List = %+v, %v, want the paused one", page.Items, err)
	}
}

func TestResumeFromFilesWaitsForReadiness(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Name: "p", Image: "modbox/web"})
	asked := make(chan struct{}, 100)
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
	e.host.serve(sb.ID, 8080, answer)
	s.reach("p", sandbox.Running)
	s.pause("p")
	for len(asked) > 0 {
		<-asked
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard})
		done <- err
	}()
	e.host.serve(sb.ID, 8080, answer)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(asked) == 0 {
		t.Error("it runs, and its port was not asked")
	}
	wantReady(t, s, "")
}

// wantReady looks at what the last start from files says of readiness.
func wantReady(t *testing.T, s *server, want string) {
	t.Helper()
	events, err := s.Events(t.Context(), s.caller, "p", sandbox.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range slices.Backward(events.Items) {
		if ev.Type == sandbox.EventResumedFromFiles {
			if ev.Data["ready"] != want {
				t.Errorf("event %+v, want ready %q", ev, want)
			}
			return
		}
	}
	t.Errorf("it was not started from its files: %+v", events)
}

func TestResumeFromFilesThatIsNotReadyRuns(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Name: "p", Image: "modbox/web"})
	e.host.serve(sb.ID, 8080, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.reach("p", sandbox.Running)
	s.write("p", "/a", "kept")
	s.pause("p")
	s.stop()
	e.cfg.ReadinessTimeout = 50 * time.Millisecond
	s = e.start() // nothing listens this time
	if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard}); err != nil {
		t.Fatal(err)
	}
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
	wantReady(t, s, "false")
}

// A checkpoint from before there were digests may be damaged so that its agent does not answer: the
// resume then starts the sandbox anew from the files, and does not retry for ever.
func TestResumeOfWhatDoesNotAnswerFallsBack(t *testing.T) {
	e := newEnv(t)
	e.cfg.StartTimeout = 200 * time.Millisecond
	s := e.start()
	pausedHere(s)
	var restores atomic.Int32
	var anew atomic.Bool
	e.host.SetFaults(fake.Faults{
		Restore: func(context.Context, sandbox.ID) error { restores.Add(1); return nil },
		Create:  func(context.Context, sandbox.ID) error { anew.Store(true); return nil },
		Dial: func(context.Context, sandbox.ID) error {
			if anew.Load() {
				return nil
			}
			return errors.New("connection refused")
		},
	})
	if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryRequire}); err == nil {
		t.Error("Resume with its memory succeeded")
	}
	s.reach("p", sandbox.Paused)
	if n := restores.Load(); n != 2 {
		t.Errorf("restored %d times, want 2", n)
	}
	s.resume("p")
	if sb := s.get("p"); sb.MemoryLost == "" {
		t.Errorf("after the resume: %+v, want one that lost its memory", sb)
	}
	if data := s.readFile("p", "/a"); data != "kept" {
		t.Errorf("the file holds %q", data)
	}
}

// A running sandbox is not given up for a checkpoint of which nothing can be brought back.
func TestRestoreOfADamagedCheckpointStopsNothing(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	cp, err := s.Checkpoints().Create(t.Context(), e.caller, "p", "c")
	if err != nil {
		t.Fatal(err)
	}
	s.write("p", "/a", "since")
	if err := os.Remove(filepath.Join(e.cfg.CheckpointDir, string(s.get("p").ID), string(cp.ID), "layer.tar")); err != nil {
		t.Fatal(err)
	}
	e.host.SetFaults(fake.Faults{Verify: fake.Fail(sandbox.Errorf(sandbox.Unsupported, "what was saved is damaged"))})
	if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "p", "c"); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("RestoreCheckpoint = %v, want code unsupported", err)
	}
	if data := s.readFile("p", "/a"); data != "since" {
		t.Errorf("the file holds %q", data)
	}
	e.host.SetFaults(fake.Faults{})
	if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "p", "c"); err != nil {
		t.Errorf("RestoreCheckpoint of one whose memory is whole = %v", err)
	}
}
