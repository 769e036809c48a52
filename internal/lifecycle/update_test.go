package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// setTTL changes the ttl of a sandbox and returns the sandbox.
func (s *server) setTTL(ref string, ttl time.Duration) (sandbox.Sandbox, error) {
	return s.Update(s.t.Context(), s.caller, ref, lifecycle.UpdateRequest{TTL: &ttl})
}

func TestChangedTTLEndsTheSandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const short = 50 * time.Millisecond
	for _, name := range []string{"running", "paused", "unlimited"} {
		ttl := time.Hour
		if name == "unlimited" {
			ttl = 0
		}
		s.run(lifecycle.CreateRequest{Name: name, TTL: ttl})
		if name == "paused" {
			s.pause(name)
		}
		before := time.Now()
		sb, err := s.setTTL(name, short)
		deadline, ok := sb.Deadline()
		if err != nil || !ok || deadline.Before(before.Add(short)) || sb.TTL != short {
			t.Fatalf("%s: ttl %s, deadline %s, %v; want %s, that long after %s", name, sb.TTL, deadline, err, short, before)
		}
		if sb = s.reach(name, sandbox.Destroyed); sb.Cause.Code != sandbox.CauseTTL || sb.EndedAt.Before(deadline) {
			t.Errorf("%s ended at %s by %v, want by ttl after %s", name, sb.EndedAt, sb.Cause, deadline)
		}
		if types := s.eventTypes(name); !slices.Contains(types, sandbox.EventTTL) {
			t.Errorf("%s: events %v, want one of type ttl", name, types)
		}
		if _, err := s.setTTL(name, time.Hour); sandbox.CodeOf(err) != sandbox.Ended {
			t.Errorf("%s: changing the ttl after the end: %v, want code ended", name, err)
		}
	}
}

func TestChangedTTLKeepsTheSandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const short = 2 * time.Second
	longer := s.create(lifecycle.CreateRequest{Name: "longer", TTL: short})
	if _, err := s.setTTL("longer", time.Hour); err != nil {
		t.Fatal(err)
	}
	s.create(lifecycle.CreateRequest{Name: "none", TTL: short})
	if sb, err := s.setTTL("none", 0); err != nil || sb.TTL != 0 {
		t.Fatalf("removing the ttl: %s, %v", sb.TTL, err)
	}
	last := s.create(lifecycle.CreateRequest{Name: "other", TTL: short})
	s.reach("other", sandbox.Destroyed) // when the earlier deadlines have passed, too
	for _, ref := range []string{"longer", "none"} {
		if sb := s.get(ref); sb.State != sandbox.Running {
			t.Errorf("%s is %s after its first deadline, %v", ref, sb.State, sb.Cause)
		}
	}
	fork, err := s.Fork(t.Context(), e.caller, "longer", lifecycle.ForkRequest{})
	if err != nil || fork[0].Err != nil {
		t.Fatal(err, fork)
	}
	if sb := fork[0].Sandbox; sb.TTL != time.Hour || !sb.TTLFrom.IsZero() {
		t.Errorf("child has ttl %s from %s, want the hour from its creation", sb.TTL, sb.TTLFrom)
	}
	// The row has the change as soon as it is answered.
	want, err := s.setTTL("longer", 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	e.backdate(longer.ID, last.CreatedAt.Add(-24*time.Hour))
	s = e.start()
	got := s.reach("longer", sandbox.Running)
	wantAt, _ := want.Deadline()
	if at, ok := got.Deadline(); !ok || !at.Equal(wantAt) {
		t.Errorf("deadline %s after a crash, want %s", at, wantAt)
	}
}

func TestChangedTTLOfASandboxThatIsBeingMade(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	release := make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Create" {
			<-release
		}
		return nil
	}, nil)
	s.create(lifecycle.CreateRequest{Name: "a", TTL: time.Hour})
	if _, err := s.setTTL("a", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end is decided", func() bool { return s.get("a").State == sandbox.Destroying })
	if _, err := s.setTTL("a", time.Hour); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("changing the ttl while it is destroyed: %v, want code ended", err)
	}
	close(release)
	if sb := s.reach("a", sandbox.Destroyed); sb.Cause.Code != sandbox.CauseTTL {
		t.Errorf("cause %v, want ttl", sb.Cause)
	}
}

func TestChangeOfTheTTLThatIsNotRecorded(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	before := s.run(lifecycle.CreateRequest{Name: "a", TTL: time.Hour})
	refuse := func(prefix string) {
		s.driver.faults.on(func(_ int, call string) error {
			if call == prefix {
				return errors.New("not now")
			}
			return nil
		}, nil)
	}
	refuse("store.ChangeSandbox")
	if _, err := s.setTTL("a", 2*time.Hour); err == nil {
		t.Fatal("a change that could not be recorded was answered as made")
	}
	want, _ := before.Deadline()
	if sb := s.get("a"); sb.TTL != time.Hour {
		t.Errorf("ttl %s after a change that was refused, want the deadline %s", sb.TTL, want)
	}
	// An end that is decided stays decided while it cannot be recorded.
	refuse("store.Transition destroying")
	if _, err := s.Destroy(t.Context(), e.caller, "a", ""); err == nil {
		t.Fatal("Destroy succeeded without a record")
	}
	if _, err := s.setTTL("a", 2*time.Hour); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("changing the ttl of a sandbox whose end is decided: %v, want code ended", err)
	}
	s.driver.faults.on(nil, nil)
	s.Sweep()
	s.reach("a", sandbox.Destroyed)
}

// TestTTLIsChangedAtTheDeadline blocks the record of a change until the old deadline has passed, so
// that the timer's end of the sandbox comes during the change.
func TestTTLIsChangedAtTheDeadline(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a", TTL: time.Hour})
	sb, err := s.setTTL("a", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	deadline, _ := sb.Deadline()
	s.driver.faults.on(func(_ int, call string) error {
		if call == "store.ChangeSandbox" {
			<-time.After(time.Until(deadline.Add(100 * time.Millisecond)))
		}
		return nil
	}, nil)
	if _, err := s.setTTL("a", time.Hour); err != nil {
		t.Fatal(err)
	}
	s.driver.faults.on(nil, nil)
	s.create(lifecycle.CreateRequest{Name: "b", TTL: 100 * time.Millisecond})
	s.reach("b", sandbox.Destroyed)
	if sb := s.get("a"); sb.State != sandbox.Running {
		t.Errorf("%s by %v, although its ttl was changed", sb.State, sb.Cause)
	}
}

// TestChangesOfTheTTLAgainstDeadlines asserts that a change that was answered keeps the sandbox,
// and that a sandbox that has ended answers so.
func TestChangesOfTheTTLAgainstDeadlines(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const n = 12
	var wg sync.WaitGroup
	changed := make([]error, n)
	for i := range n {
		name := "s" + strconv.Itoa(i)
		s.run(lifecycle.CreateRequest{Name: name, TTL: time.Hour})
		if _, err := s.setTTL(name, 30*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			sb := s.get(name)
			deadline, _ := sb.Deadline()
			ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(time.Duration(i-n/2)*time.Millisecond/4))
			defer cancel()
			<-ctx.Done()
			_, changed[i] = s.setTTL(name, time.Hour)
		})
	}
	wg.Wait()
	for i, err := range changed {
		name := "s" + strconv.Itoa(i)
		switch {
		case err == nil:
			if sb := s.get(name); sb.State != sandbox.Running {
				t.Errorf("%s is %s by %v, although its ttl was changed", name, sb.State, sb.Cause)
			}
		case sandbox.CodeOf(err) == sandbox.Ended:
			s.reach(name, sandbox.Destroyed)
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
}
