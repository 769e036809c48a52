package fleet_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestMakeSpace checks which boxes are to be destroyed for a box that finds no space: none that is not necessary, and none if that does not help.
func TestMakeSpace(t *testing.T) {
	r := newRig(t, testTimeout, 4*gib, 2*gib)
	r.limit = func(memory int64) int64 { return memory }
	r.reopen(t, r.driver())
	made := func(name string, memory int64) sandbox.ID {
		t.Helper()
		s, _ := r.started(t, memory)
		r.wantOn(t, s.ID, name)
		return s.ID
	}
	large, other := made("a", 2*gib), made("b", gib)
	small, last := made("a", gib/2), made("a", gib)
	sandbox1 := made("b", gib/2) // a has 512 MiB for others, as b
	want := func(what string, memory int64, candidates []sandbox.ID, want ...sandbox.ID) {
		t.Helper()
		box := spec()
		box.Resources.MemoryBytes = memory
		release, err := r.control.Load().Stage(within(t), "", box, "")
		if full := memory > gib/2; errors.Is(err, driver.ErrFull) != full {
			t.Errorf("%s: Stage() = %v", what, err)
		}
		if err == nil {
			release()
		}
		if got, ok := r.driver().MakeSpace(within(t), box, "", candidates); !slices.Equal(got, want) || ok != (len(want) > 0 || memory <= gib/2) {
			t.Errorf("%s: MakeSpace() = %q, %v, want %q", what, got, ok, want)
		}
	}
	all := []sandbox.ID{small, large, last, other}
	want("a worker has space", gib/4, all)
	want("the oldest box is enough", gib, all, small)
	want("the oldest box is too small, and not necessary", 2*gib, all, large)
	want("two boxes", 3*gib, all, small, large)
	want("all boxes of a", 4*gib, all, small, large, last)
	want("too large for any worker", 5*gib, all)
	want("the boxes are too small", 2*gib, []sandbox.ID{small, sandbox.NewID()})
	want("no boxes", gib, nil)
	if got, ok := r.driver().MakeSpace(within(t), driver.Spec{ID: sandbox1, Resources: sandbox.Resources{MemoryBytes: 4 * gib}}, "", all); ok {
		t.Errorf("MakeSpace() for a box that has a place = %q", got)
	}
}

// TestMakeSpaceForAMemory checks that boxes give way on the worker that can restore a memory, although others have space or lose less.
func TestMakeSpaceForAMemory(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, 2*gib, 2*gib, 4*gib)
	r.limit = func(memory int64) int64 { return memory }
	r.reopen(t, r.driver())
	paused, _ := r.started(t, gib)
	r.wantOn(t, paused.ID, "a")
	dir := r.pause(t, paused.ID)
	filler, _ := r.started(t, 8*gib)
	r.wantOn(t, filler.ID, "a")
	last, _ := r.started(t, 4*gib)
	r.wantOn(t, last.ID, "d")
	_, err := r.control.Load().Stage(within(t), "", paused, dir)
	if !errors.Is(err, driver.ErrFull) || sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Fatalf("Stage() = %v, want that there is no space where the memory can be restored", err)
	}
	candidates := []sandbox.ID{last.ID, filler.ID}
	if got, ok := r.driver().MakeSpace(within(t), paused, dir, candidates); !ok || !slices.Equal(got, []sandbox.ID{filler.ID}) {
		t.Errorf("MakeSpace() = %q, want the box on the worker that can restore the memory", got)
	}
	if got, ok := r.driver().MakeSpace(within(t), paused, dir, []sandbox.ID{last.ID}); ok {
		t.Errorf("MakeSpace() = %q, want none: the other worker cannot restore the memory", got)
	}
	if err := r.driver().Destroy(within(t), filler.ID); err != nil {
		t.Fatal(err)
	}
	if got, ok := r.driver().MakeSpace(within(t), paused, dir, []sandbox.ID{last.ID}); !ok || len(got) != 0 {
		t.Errorf("MakeSpace() = %q, %v, want none: there is space by now", got, ok)
	}
	if _, err := r.driver().Restore(within(t), paused, dir); err != nil {
		t.Fatalf("Restore() = %v", err)
	}
	r.wantOn(t, paused.ID, "a")
}
