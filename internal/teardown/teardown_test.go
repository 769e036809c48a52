package teardown_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/teardown"
)

// workspace is a workspace with sandboxes, snapshots and images.
type workspace struct {
	mu        sync.Mutex
	sandboxes []sandbox.ID
	snapshots []sandbox.SnapshotID
	forgotten sandbox.WorkspaceID // whose images were forgotten last
	refuse    error               // of Destroy
}

type sandboxes struct{ *workspace }

func (w sandboxes) List(context.Context, sandbox.Caller, sandbox.Filter) (p page.Page[sandbox.Sandbox], err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.sandboxes[:min(2, len(w.sandboxes))] {
		p.Items = append(p.Items, sandbox.Sandbox{ID: id})
	}
	return p, nil
}

func (w sandboxes) Destroy(_ context.Context, _ sandbox.Caller, ref string, _ sandbox.CauseCode) (sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse == nil {
		w.sandboxes = slices.DeleteFunc(w.sandboxes, func(id sandbox.ID) bool { return string(id) == ref })
	}
	return sandbox.Sandbox{}, w.refuse
}

type snapshots struct{ *workspace }

func (w snapshots) List(context.Context, sandbox.Caller, sandbox.SnapshotFilter) (p sandbox.SnapshotPage, err error) {
	for _, id := range w.snapshots[:min(2, len(w.snapshots))] {
		p.Snapshots = append(p.Snapshots, sandbox.Snapshot{ID: id})
	}
	return p, nil
}

func (w snapshots) Delete(_ context.Context, _ sandbox.Caller, ref string) error {
	w.snapshots = slices.DeleteFunc(w.snapshots, func(id sandbox.SnapshotID) bool { return string(id) == ref })
	return nil
}

type images struct{ *workspace }

func (w images) ForgetBuilt(_ context.Context, ws sandbox.WorkspaceID) error {
	w.forgotten = ws
	return nil
}

// TestEmpty: nothing that a workspace has outlives it, however many pages of it there are.
func TestEmpty(t *testing.T) {
	w := &workspace{sandboxes: []sandbox.ID{"a", "b", "c"}, snapshots: []sandbox.SnapshotID{"x", "y", "z"}}
	if empty, err := teardown.New(nil, sandboxes{w}, snapshots{w}, images{w}).Empty(t.Context(), "gone"); err != nil || !empty {
		t.Fatal(empty, err)
	}
	if len(w.sandboxes) != 0 || len(w.snapshots) != 0 || w.forgotten != "gone" {
		t.Errorf("left %v and %v, forgot the images of %q; want nothing left and gone", w.sandboxes, w.snapshots, w.forgotten)
	}
}

// TestEmptyStopsAtAnError: a sandbox that does not end keeps the snapshots and images for another attempt.
func TestEmptyStopsAtAnError(t *testing.T) {
	w := &workspace{sandboxes: []sandbox.ID{"a"}, snapshots: []sandbox.SnapshotID{"x"}, refuse: errors.New("refused")}
	if empty, err := teardown.New(nil, sandboxes{w}, snapshots{w}, images{w}).Empty(t.Context(), "gone"); empty || !errors.Is(err, w.refuse) {
		t.Errorf("Empty = %v, %v, want %v", empty, err, w.refuse)
	}
	if len(w.snapshots) != 1 || w.forgotten != "" {
		t.Errorf("snapshots %v, forgot the images of %q; want both untouched", w.snapshots, w.forgotten)
	}
}

// TestEmptyWithOtherServers: each server destroys the sandboxes of its own shards, and the primary does the rest at the end.
func TestEmptyWithOtherServers(t *testing.T) {
	w := &workspace{snapshots: []sandbox.SnapshotID{"x", "y", "z"}}
	lower, upper := sandbox.Own(sandbox.RangesFrom(0, 7)), sandbox.Own(sandbox.RangesFrom(8, 15))
	for range 3 {
		w.sandboxes = append(w.sandboxes, lower.NewID())
	}
	for range 4 {
		w.sandboxes = append(w.sandboxes, upper.NewID())
	}
	for _, step := range []struct {
		owner *sandbox.Ownership
		left  int // sandboxes
		empty bool
	}{{lower, 4, false}, {upper, 0, false}, {lower, 0, true}} {
		empty, err := teardown.New(step.owner, paged{w}, snapshots{w}, images{w}).Empty(t.Context(), "gone")
		if err != nil || empty != step.empty || len(w.sandboxes) != step.left || (len(w.snapshots) == 0) != step.empty || (w.forgotten != "") != step.empty {
			t.Errorf("%v, %v, left %v and %v, forgot the images of %q; want %+v", empty, err, w.sandboxes, w.snapshots, w.forgotten, step)
		}
	}
}

// paged lists the sandboxes of a workspace in pages of two.
type paged struct{ *workspace }

func (w paged) List(_ context.Context, _ sandbox.Caller, f sandbox.Filter) (p page.Page[sandbox.Sandbox], err error) {
	for i, id := range w.sandboxes {
		if f.Cursor != "" && i <= slices.Index(w.sandboxes, sandbox.ID(f.Cursor)) {
			continue
		}
		if len(p.Items) == 2 {
			p.Next = string(p.Items[1].ID)
			break
		}
		p.Items = append(p.Items, sandbox.Sandbox{ID: id})
	}
	return p, nil
}

func (w paged) Destroy(ctx context.Context, c sandbox.Caller, ref string, cause sandbox.CauseCode) (sandbox.Sandbox, error) {
	return sandboxes(w).Destroy(ctx, c, ref, cause)
}
