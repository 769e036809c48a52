package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// lostExit is how a box ends whose processes were killed on the host.
var lostExit = driver.Exit{Cause: sandbox.CauseExited, Detail: "killed", Lost: true}

// lostWorker is the exit of a box whose worker is lost.
var lostWorker = driver.Exit{Cause: sandbox.CauseWorkerLost, Detail: "its node is gone", Lost: true}

// keeping creates the running sandbox "a" with automatic checkpoints.
func (s *server) keeping() sandbox.Sandbox {
	s.t.Helper()
	return s.run(lifecycle.CreateRequest{Name: "a", CheckpointInterval: time.Hour})
}

// saveAutomatically makes the automatic checkpoint of "a", and returns the sandbox.
func (s *server) saveAutomatically() sandbox.Sandbox {
	s.t.Helper()
	sb := s.get("a")
	s.SaveAutomatically(sb.ID)
	return s.get("a")
}

// eventsOf returns the types of the events of a sandbox.
func (s *server) eventsOf(ref string) (types []sandbox.EventType) {
	s.t.Helper()
	list, err := s.Events(s.t.Context(), s.caller, ref, sandbox.EventFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, ev := range list.Items {
		types = append(types, ev.Type)
	}
	return types
}

func TestLostSandboxGoesOnFromItsAutomaticCheckpoint(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.keeping()
	s.write("a", "/a", "old")
	sb := s.saveAutomatically()
	if sb.LastCheckpointAt.IsZero() {
		t.Fatal("no automatic checkpoint was made")
	}
	if list, err := s.Checkpoints().List(t.Context(), e.caller, "a"); err != nil || len(list) != 0 {
		t.Errorf("named checkpoints: %v, %v, want none", list, err)
	}
	for _, exit := range []driver.Exit{lostExit, lostWorker} { // the second time before the next checkpoint
		s.write("a", "/a", "new")
		e.host.End(sb.ID, exit)
		eventually(t, "it goes on as it was", func() bool {
			now := s.get("a")
			return now.State == sandbox.Running && string(now.Handle) != string(sb.Handle)
		})
		sb = s.get("a")
		if got := s.readFile("a", "/a"); got != "old" {
			t.Errorf("its file holds %q, want it as at the checkpoint", got)
		}
	}
	if types := s.eventsOf("a"); !slices.Contains(types, sandbox.EventRolledBack) {
		t.Errorf("events %v, want one that says so", types)
	}
	if names := e.saved(string(sb.ID)); len(names) != 1 {
		t.Errorf("saved states: %v, want the automatic checkpoint", names)
	}
	s.destroy("a")
	if names := e.saved(string(sb.ID)); len(names) != 0 {
		t.Errorf("saved states of an ended sandbox: %v", names)
	}
}

func TestSandboxThatIsLostAgainAndAgainEnds(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "old")
	s.saveAutomatically()
	s.stop()
	e.exec("UPDATE checkpoints SET restores = 5")
	s = e.start()
	e.host.End(sb.ID, lostExit)
	sb = s.reach("a", sandbox.Failed)
	if sb.Cause.Code != sandbox.CauseExited || sb.Cause.Message != "it ended by itself: killed; it could not go on from its automatic checkpoint: it was lost 6 times since then" {
		t.Errorf("cause %v", sb.Cause)
	}
}

// A sandbox whose box the driver does not know any more goes on from its checkpoint.
func TestForgottenBoxRollsBack(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "old")
	s.saveAutomatically()
	s.stop()
	var asked atomic.Bool
	e.host.SetFaults(fake.Faults{Wait: func(context.Context, sandbox.ID) error {
		if asked.Swap(true) {
			return nil
		}
		return sandbox.Errorf(sandbox.NotFound, "there is no box")
	}})
	s = e.start()
	eventually(t, "it goes on or ends", func() bool {
		return slices.Contains(s.eventsOf(string(sb.ID)), sandbox.EventRolledBack) || s.get(string(sb.ID)).State.Ended()
	})
	s.reach("a", sandbox.Running)
	if got := s.readFile("a", "/a"); got != "old" {
		t.Errorf("its file holds %q, want it as at the checkpoint", got)
	}
}

// A sandbox whose guest ends, or whose box the kernel killed for its memory, and a lost sandbox without a checkpoint, end.
func TestOwnEndDoesNotRollBack(t *testing.T) {
	for name, exit := range map[string]driver.Exit{
		"exited": driverExit, "oom": {Cause: sandbox.CauseOOM}, "lost_by_oom": {Cause: sandbox.CauseOOM, Lost: true}, "lost": lostExit, "lost_worker": lostWorker,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.start()
			sb := s.keeping()
			if !exit.Lost || exit.Cause == sandbox.CauseOOM { // else it has no checkpoint
				s.saveAutomatically()
			}
			e.host.End(sb.ID, exit)
			if sb = s.reach("a", sandbox.Failed); sb.Cause.Code != exit.Cause {
				t.Errorf("cause %v, want %s", sb.Cause, exit.Cause)
			}
		})
	}
}

func TestRestartOfTheHostRollsBack(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "old")
	s.saveAutomatically()
	s.write("a", "/a", "new")
	s.kill()
	e.host.destroy(sb.ID)
	s = e.start()
	s.reach("a", sandbox.Running)
	eventually(t, "it goes on", func() bool { return slices.Contains(s.eventsOf("a"), sandbox.EventRolledBack) })
	if got := s.readFile("a", "/a"); got != "old" {
		t.Errorf("its file holds %q, want it as at the checkpoint", got)
	}
}

func TestAutomaticCheckpointIsReplacedWhenTheNextIsRecorded(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.keeping()
	s.write("a", "/a", "one")
	first := s.saveAutomatically()
	before := e.saved(string(first.ID))
	s.driver.faults.on(func(_ int, call string) error {
		if call == "checkpoints.ReplaceAutomatic" {
			return sandbox.Errorf(sandbox.QuotaExceeded, "the disk of the workspace is used up")
		}
		return nil
	}, nil)
	s.write("a", "/a", "two")
	for range 2 {
		if sb := s.saveAutomatically(); !sb.LastCheckpointAt.Equal(first.LastCheckpointAt) {
			t.Errorf("last checkpoint at %s, want that of %s to stay", sb.LastCheckpointAt, first.LastCheckpointAt)
		}
	}
	s.Sweep()
	if names := e.saved(string(first.ID)); !slices.Equal(names, before) {
		t.Errorf("saved states: %v, want still %v", names, before)
	}
	failed := 0
	for _, typ := range s.eventsOf("a") {
		if typ == sandbox.EventCheckpointFailed {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d events of a failed checkpoint, want one for both", failed)
	}
	s.driver.faults.on(nil, nil)
	if sb := s.saveAutomatically(); !sb.LastCheckpointAt.After(first.LastCheckpointAt) {
		t.Error("no new checkpoint was made")
	}
	if names := e.saved(string(first.ID)); len(names) != 1 || slices.Equal(names, before) {
		t.Errorf("saved states: %v, want one other than %v", names, before)
	}
	if sb := s.get("a"); !s.saveAutomatically().LastCheckpointAt.Equal(sb.LastCheckpointAt) {
		t.Error("a sandbox that nothing used since its checkpoint was saved again")
	}
}

func TestAutomaticCheckpointsSwitchedOff(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.keeping()
	s.write("a", "/a", "one")
	s.saveAutomatically()
	for _, d := range []time.Duration{time.Second, 25 * time.Hour, -1} {
		_, err := s.Update(t.Context(), e.caller, "a", lifecycle.UpdateRequest{CheckpointInterval: &d})
		var invalid *sandbox.Error
		if !errors.As(err, &invalid) || invalid.Field != "checkpoint_interval_seconds" {
			t.Errorf("Update(%s) = %v, want the field named", d, err)
		}
	}
	off := time.Duration(0)
	sb, err := s.Update(t.Context(), e.caller, "a", lifecycle.UpdateRequest{CheckpointInterval: &off})
	if err != nil || sb.CheckpointInterval != 0 || !sb.LastCheckpointAt.IsZero() || len(e.saved(string(sb.ID))) != 0 {
		t.Errorf("switched off: %+v, %v; saved %v", sb, err, e.saved(string(sb.ID)))
	}
	s.write("a", "/a", "two")
	if sb := s.saveAutomatically(); !sb.LastCheckpointAt.IsZero() {
		t.Error("a checkpoint was made although they are off")
	}
}

// After going back to a named checkpoint, a loss must not bring back later states.
func TestGoingBackDropsTheAutomaticCheckpoint(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.keeping()
	s.write("a", "/a", "named")
	if _, err := s.Checkpoints().Create(t.Context(), e.caller, "a", "c"); err != nil {
		t.Fatal(err)
	}
	s.write("a", "/a", "automatic")
	s.saveAutomatically()
	if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "a", "c"); err != nil {
		t.Fatal(err)
	}
	if sb := s.get("a"); !sb.LastCheckpointAt.IsZero() || len(e.saved(string(sb.ID))) != 1 {
		t.Errorf("%+v; saved %v, want the named checkpoint", sb, e.saved(string(sb.ID)))
	}
}

// A paused sandbox is not saved. A sandbox that ends while it is saved leaves nothing.
func TestNoAutomaticCheckpointUnlessRunning(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.keeping()
	s.pause("a")
	if sb := s.saveAutomatically(); !sb.LastCheckpointAt.IsZero() {
		t.Error("a checkpoint was made of a paused sandbox")
	}
	s.resume("a")
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "driver.Checkpoint" {
			s.driver.faults.on(nil, nil)
			go func() { _, _ = s.Destroy(t.Context(), e.caller, "a", "") }()
			eventually(t, "its end is decided", func() bool { return s.get("a").State == sandbox.Destroying })
		}
		return nil
	})
	s.SaveAutomatically(sb.ID)
	s.reach(string(sb.ID), sandbox.Destroyed)
	s.Sweep()
	if names := e.saved(string(sb.ID)); len(names) != 0 {
		t.Errorf("saved states of an ended sandbox: %v", names)
	}
	e.wantQuarantined()
}

// TestEndThatIsNotRecordedYetDoesNotRollBack: a sandbox whose destroy met a full disk does not
// come back when its box ends, and ends with the cause of the destroy.
func TestEndThatIsNotRecordedYetDoesNotRollBack(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "old")
	s.saveAutomatically()
	var attempts atomic.Int32
	s.store.faults.on(func(_ int, call string) error {
		if call != "store.Transition destroying" {
			return nil
		}
		attempts.Add(1)
		return errors.New("no space")
	}, nil)
	if _, err := s.Destroy(t.Context(), s.caller, "a", ""); err == nil {
		t.Fatal("Destroy() succeeded although its record failed")
	}
	before := attempts.Load()
	e.host.End(sb.ID, lostExit)
	eventually(t, "the end of the box is handled", func() bool {
		return attempts.Load() > before || slices.Contains(s.eventsOf("a"), sandbox.EventRolledBack)
	})
	s.store.faults.on(nil, nil)
	s.Sweep()
	sb = s.reach("a", sandbox.Destroyed)
	if sb.Cause.Code != sandbox.CauseDestroyed {
		t.Errorf("cause %v, want that it was destroyed", sb.Cause)
	}
	if types := s.eventsOf("a"); slices.Contains(types, sandbox.EventRolledBack) {
		t.Errorf("events %v: the sandbox came back after its destroy", types)
	}
}
