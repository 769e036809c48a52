package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
)

// wantBegun fails the test unless exactly these checkpoints are begun, in any order.
func wantBegun(t *testing.T, c *store.Checkpoints, want ...sandbox.CheckpointID) {
	t.Helper()
	list, err := c.Begun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[sandbox.CheckpointID]bool{}
	for _, b := range list {
		got[b.ID] = true
	}
	wanted := map[sandbox.CheckpointID]bool{}
	for _, id := range want {
		wanted[id] = true
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Errorf("checkpoints begun (-want +got):\n%s", d)
	}
}

func wantDiscarded(t *testing.T, c *store.Checkpoints, id sandbox.CheckpointID, want bool) {
	t.Helper()
	if got, err := c.Discarded(t.Context(), id); err != nil || got != want {
		t.Errorf("Discarded(%s) = %v, %v, want %v", id, got, err, want)
	}
}

func TestBegunCheckpointEndsWithItsRow(t *testing.T) {
	s, ws := openStore(t)
	c := s.Checkpoints
	sb := create(t, s, creation(ws, "a"))
	now := time.Now().UTC()
	begin := func() sandbox.CheckpointID {
		t.Helper()
		id := sandbox.NewCheckpointID()
		wantDiscarded(t, c, id, false)
		if err := c.Begin(t.Context(), id, sb.ID, "", now); err != nil {
			t.Fatal(err)
		}
		wantDiscarded(t, c, id, true)
		return id
	}
	named, saved, abandoned, other := begin(), begin(), begin(), begin()
	wantBegun(t, c, named, saved, abandoned, other)

	ev := sandbox.Event{Sandbox: sb.ID, Time: now, Type: sandbox.EventCheckpointCreated}
	if err := c.Create(t.Context(), &sandbox.Checkpoint{ID: named, Sandbox: sb.ID, Name: "n", CreatedAt: now}, 9, ev, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	wantBegun(t, c, saved, abandoned, other)
	wantDiscarded(t, c, named, false)

	if _, err := s.Sandboxes.Transition(t.Context(), sb.ID, sandbox.Provisioning, sandbox.Running, sandbox.Change{}, ev); err != nil {
		t.Fatal(err)
	}
	_, err := s.Sandboxes.Transition(t.Context(), sb.ID, sandbox.Running, sandbox.Pausing, sandbox.Change{Saved: &saved}, ev)
	if err != nil {
		t.Fatal(err)
	}
	wantBegun(t, c, abandoned, other)
	wantDiscarded(t, c, saved, false)

	for range 2 {
		if err := c.Abandon(t.Context(), abandoned); err != nil {
			t.Fatal(err)
		}
	}
	wantBegun(t, c, other)
	wantDiscarded(t, c, abandoned, false)

	if err := c.Delete(t.Context(), named, ev); err != nil {
		t.Fatal(err)
	}
	wantDiscarded(t, c, named, true) // its row gave it up
}

// A sandbox that goes back to its automatic checkpoint is in the checkpoint that was the last before that.
func TestParentAfterAnAutomaticCheckpoint(t *testing.T) {
	s, ws := openStore(t)
	c, sb := s.Checkpoints, create(t, s, creation(ws, "a"))
	now := time.Now().UTC()
	ev := sandbox.Event{Sandbox: sb.ID, Time: now, Type: sandbox.EventCheckpointCreated}
	named := func(name string) sandbox.Checkpoint {
		t.Helper()
		cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: sb.ID, Name: name, CreatedAt: now}
		if err := c.Create(t.Context(), &cp, 9, ev, quota.Admission{}); err != nil {
			t.Fatal(err)
		}
		return cp
	}
	a := named("a")
	auto := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: sb.ID, CreatedAt: now}
	if err := c.ReplaceAutomatic(t.Context(), auto, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	if b := named("b"); b.Parent != a.ID || b.ParentName != "a" {
		t.Errorf("the parent of b is %s %q, want a", b.Parent, b.ParentName)
	}
	branch := sandbox.NewCheckpointID()
	if err := c.Begin(t.Context(), branch, sb.ID, auto.ID, now); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		from, to sandbox.State
		saved    sandbox.CheckpointID
	}{{from: sandbox.Provisioning, to: sandbox.Running}, {from: sandbox.Running, to: sandbox.Pausing, saved: branch}} {
		if _, err := s.Sandboxes.Transition(t.Context(), sb.ID, step.from, step.to, sandbox.Change{Saved: &step.saved}, ev); err != nil {
			t.Fatal(err)
		}
	}
	if next := named("c"); next.Parent != a.ID {
		t.Errorf("the parent of c is %q, want a", next.ParentName)
	}
	if err := c.Delete(t.Context(), a.ID, ev); err != nil {
		t.Fatal(err)
	}
	list, err := c.List(t.Context(), sb.ID)
	if err != nil || len(list) != 3 {
		t.Fatalf("List = %v, %v, want the automatic checkpoint, b and c", list, err)
	}
	for _, cp := range list {
		if cp.Parent != "" || cp.ParentName != "" {
			t.Errorf("the parent of %q is %s %q after the deletion of a, want none", cp.Name, cp.Parent, cp.ParentName)
		}
	}
}

// Of a database that is put in place of another, the other may know that checkpoint.
func TestRenewedInstallationHasBegunNothing(t *testing.T) {
	s, ws := openStore(t)
	c := s.Checkpoints
	sb := create(t, s, creation(ws, "a"))
	id := sandbox.NewCheckpointID()
	if err := c.Begin(t.Context(), id, sb.ID, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RenewInstallation(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantBegun(t, c)
	wantDiscarded(t, c, id, false)
}
