package lifecycle_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// missing makes the image modbox/big known but missing.
func (c *images) missing(ensure func(ctx context.Context, ref string, progress func(phase.Event)) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unmade, c.ensure = map[string]bool{"sha256:3": true}, ensure
}

func TestImageIsMadeOnDemand(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	entered, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	e.images.missing(func(ctx context.Context, _ string, progress func(phase.Event)) error {
		calls.Add(1)
		for _, p := range []phase.Phase{"downloading", "downloading", "installing"} {
			progress(phase.Event{Phase: p, Message: "x"})
		}
		close(entered)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	first := s.create(lifecycle.CreateRequest{Image: "modbox/big"})
	<-entered
	second := s.create(lifecycle.CreateRequest{Image: "modbox/big"})
	// A sandbox that waits for an image delays no other.
	s.run(lifecycle.CreateRequest{})
	eventually(t, "the second sandbox waits for the image, too", func() bool {
		return len(s.eventTypes(string(second.ID))) == 2
	})
	close(release)
	want := []sandbox.EventType{sandbox.EventCreated, sandbox.EventImageBuilding, sandbox.EventImageBuilding, sandbox.EventRunning}
	s.reach(string(first.ID), sandbox.Running)
	s.reach(string(second.ID), sandbox.Running)
	eventually(t, "the events are written", func() bool { return len(s.eventTypes(string(first.ID))) == len(want) })
	got := s.eventTypes(string(first.ID))
	got[2], got[3] = max(got[2], got[3]), min(got[2], got[3]) // progress is written a little later
	want[2], want[3] = max(want[2], want[3]), min(want[2], want[3])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the image was made %d times, want once", n)
	}
}

func TestImageThatNobodyWantsAnyMoreIsNotMade(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	entered, stopped := make(chan struct{}, 2), make(chan struct{})
	e.images.missing(func(ctx context.Context, _ string, progress func(phase.Event)) error {
		progress(phase.Event{Phase: "downloading"})
		entered <- struct{}{}
		<-ctx.Done()
		close(stopped)
		return ctx.Err()
	})
	one, two := s.create(lifecycle.CreateRequest{Image: "modbox/big"}), s.create(lifecycle.CreateRequest{Image: "modbox/big"})
	<-entered
	for _, sb := range []sandbox.Sandbox{one, two} {
		eventually(t, "both wait for the image", func() bool { return len(s.eventTypes(string(sb.ID))) == 2 })
	}
	s.destroy(string(one.ID))
	select {
	case <-stopped:
		t.Fatal("the making ended although the other sandbox waits for it")
	default:
	}
	s.destroy(string(two.ID))
	<-stopped
	if sb := s.reach(string(two.ID), sandbox.Destroyed); sb.Cause.Code != sandbox.CauseDestroyed {
		t.Errorf("cause %v, want destroyed", sb.Cause)
	}
	// A later request does not get the error of an abandoned task.
	e.images.missing(func(context.Context, string, func(phase.Event)) error { return nil })
	s.run(lifecycle.CreateRequest{Image: "modbox/big"})
}

func TestImageThatCannotBeMade(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	e.images.missing(func(context.Context, string, func(phase.Event)) error {
		return sandbox.Errorf(sandbox.Unavailable, "mmdebstrap could not make it: no such package")
	})
	id := string(s.create(lifecycle.CreateRequest{Image: "modbox/big"}).ID)
	sb := s.reach(id, sandbox.Failed)
	if sb.Cause.Code != sandbox.CauseImage || !strings.Contains(sb.Cause.Message, "no such package") {
		t.Errorf("cause %v, want image and what the program said", sb.Cause)
	}
}

func TestImageThatMayHaveMovedIsAskedForAgain(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	asked := make(chan string, 1)
	e.images.missing(func(_ context.Context, ref string, _ func(phase.Event)) error {
		asked <- ref
		return nil
	})
	e.images.mu.Lock()
	e.images.unmade, e.images.stale = nil, "modbox/big:latest"
	e.images.mu.Unlock()
	s.run(lifecycle.CreateRequest{Image: "modbox/big"})
	select {
	case ref := <-asked:
		if ref != "modbox/big:latest" {
			t.Errorf("asked for %q", ref)
		}
	default:
		t.Error("the sandbox runs and nobody was asked")
	}
	img, err := s.Prepare().Pull(t.Context(), s.caller, "modbox/big", nil)
	if err != nil || img.Name != "modbox/big" || <-asked != "modbox/big" {
		t.Errorf("PullImage = %+v, %v", img, err)
	}
	if _, err := s.Prepare().Pull(t.Context(), s.caller, "", nil); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("PullImage without a name = %v, want invalid", err)
	}
}
