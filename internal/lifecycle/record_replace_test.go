package lifecycle_test

import (
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReplaceKeepsThePlace: while sandboxes are replaced at a full quota, nobody
// who creates others gets a place between the end of the one and the other.
func TestReplaceKeepsThePlace(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 1}
	s := e.start()
	old := s.run(lifecycle.CreateRequest{Name: "a"})
	entered, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(entered) })
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Destroy" {
			first()
			<-release
		}
		return nil
	}, nil)
	got := make(chan sandbox.Sandbox, 1)
	go func() {
		sb, created, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "a", Replace: true})
		if err != nil || !created {
			t.Errorf("replacing: created %v, %v", created, err)
		}
		got <- sb
	}()
	<-entered // the end of the old one is decided, and it takes long
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "thief"})
	wantRefused(t, "another in between", err, quota.LimitSandboxes)
	next, err := s.Get(t.Context(), s.caller, "a")
	if err != nil || next.ID == old.ID {
		t.Errorf("of that name there is %s (%s), %v, want the new one", next.ID, next.State, err)
	}
	s.reach(string(next.ID), sandbox.Running) // without waiting for the old one
	select {
	case <-got:
		t.Error("replacing was over before nothing was left of the old one")
	default:
	}
	close(release)
	if sb := <-got; sb.ID != next.ID {
		t.Errorf("Create = %s, want %s", sb.ID, next.ID)
	}
	if sb := s.reach(string(old.ID), sandbox.Destroyed); sb.Cause.Code != sandbox.CauseReplaced {
		t.Errorf("the old one ended by %v", sb.Cause)
	}
	if sb := s.reach("a", sandbox.Running); sb.ID != next.ID {
		t.Errorf("of that name there is %s, want %s", sb.ID, next.ID)
	}
}

// TestReplaceInDoubt: a replacement that was recorded although the store said that
// it was not leaves nothing behind.
func TestReplaceInDoubt(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	old := s.run(lifecycle.CreateRequest{Name: "a"})
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "store.CreateSandbox" {
			return errDead
		}
		return nil
	})
	if _, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "a", Replace: true}); err == nil {
		t.Error("a create whose record failed worked")
	}
	s.driver.faults.on(nil, nil)
	eventually(t, "nothing is left", func() bool {
		s.Sweep()
		return s.used().Sandboxes == 0 && len(e.host.ids()) == 0
	})
	s.reach(string(old.ID), sandbox.Destroyed)
}

// TestForkOfAFullQuotaSavesNothing: a fork is let in before its parent stands still.
func TestForkOfAFullQuotaSavesNothing(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 3}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "parent"})
	var mu sync.Mutex
	saved := 0
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Checkpoint" {
			mu.Lock()
			defer mu.Unlock()
			saved++
			if used := s.used(); used.Sandboxes != 3 {
				t.Errorf("used while the parent is saved: %+v, want the places of the children taken", used)
			}
		}
		return nil
	}, nil)
	_, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Count: 3})
	wantRefused(t, "one child too many", err, quota.LimitSandboxes)
	if used := s.used(); used.Sandboxes != 1 || saved != 0 {
		t.Errorf("after a fork that was refused: %+v, saved %d times", used, saved)
	}
	children, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Count: 2})
	if err != nil || children[0].Err != nil || children[1].Err != nil || saved != 1 {
		t.Errorf("Fork = %+v, %v, saved %d times", children, err, saved)
	}
}

// TestForkThatCannotBeSavedGivesBackItsPlaces: the children of a parent that cannot
// be saved end.
func TestForkThatCannotBeSavedGivesBackItsPlaces(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "parent"})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Checkpoint" {
			return sandbox.Errorf(sandbox.DiskFull, "no room")
		}
		return nil
	}, nil)
	if _, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Names: []string{"x", "y"}}); sandbox.CodeOf(err) != sandbox.DiskFull {
		t.Errorf("fork of what cannot be saved: %v, want code disk_full", err)
	}
	for _, name := range []string{"x", "y"} {
		if sb := s.reach(name, sandbox.Failed); sb.Cause.Code != sandbox.CauseStart {
			t.Errorf("child %s ended by %v", name, sb.Cause)
		}
	}
	if used := s.used(); used.Sandboxes != 1 {
		t.Errorf("used after that: %+v", used)
	}
}
