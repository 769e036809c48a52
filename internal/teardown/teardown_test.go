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
	if err := teardown.New(sandboxes{w}, snapshots{w}, images{w}).Empty(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if len(w.sandboxes) != 0 || len(w.snapshots) != 0 || w.forgotten != "gone" {
		t.Errorf("left %v and %v, forgot the images of %q; want nothing left and gone", w.sandboxes, w.snapshots, w.forgotten)
	}
}

// TestEmptyStopsAtAnError: a sandbox that does not end keeps the snapshots and images for another attempt.
func TestEmptyStopsAtAnError(t *testing.T) {
	w := &workspace{sandboxes: []sandbox.ID{"a"}, snapshots: []sandbox.SnapshotID{"x"}, refuse: errors.New("refused")}
	if err := teardown.New(sandboxes{w}, snapshots{w}, images{w}).Empty(t.Context(), "gone"); !errors.Is(err, w.refuse) {
		t.Errorf("Empty = %v, want %v", err, w.refuse)
	}
	if len(w.snapshots) != 1 || w.forgotten != "" {
		t.Errorf("snapshots %v, forgot the images of %q; want both untouched", w.snapshots, w.forgotten)
	}
}
