package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
)

// copies has a running sandbox, whose checkpoints it copies.
type copies struct {
	*store.Archives
	t   *testing.T
	s   *store.Store
	ws  sandbox.WorkspaceID
	id  sandbox.ID
	now time.Time
}

func newCopies(t *testing.T) *copies {
	s, ws := openStore(t)
	c := &copies{Archives: s.Sandboxes.Archives(), t: t, s: s, ws: ws, id: create(t, s, creation(ws, "a")).ID, now: time.Now().UTC()}
	c.move(sandbox.Provisioning, sandbox.Running)
	return c
}

func (c *copies) move(from, to sandbox.State) {
	c.t.Helper()
	ev := sandbox.Event{Sandbox: c.id, Time: c.now, Type: sandbox.EventPaused}
	if _, err := c.s.Sandboxes.Transition(c.t.Context(), c.id, from, to, sandbox.Change{}, ev); err != nil {
		c.t.Fatal(err)
	}
}

// named makes a named checkpoint, and automatic the automatic one.
func (c *copies) named(name string) sandbox.CheckpointID {
	c.t.Helper()
	cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: c.id, Name: name, SizeBytes: 100, ImageDigest: "sha256:" + name, CreatedAt: c.now}
	ev := sandbox.Event{Sandbox: c.id, Time: c.now, Type: sandbox.EventCheckpointCreated}
	if err := c.s.Checkpoints.Create(c.t.Context(), &cp, 9, ev, quota.Admission{}); err != nil {
		c.t.Fatal(err)
	}
	return cp.ID
}

func (c *copies) automatic() sandbox.CheckpointID {
	c.t.Helper()
	c.now = c.now.Add(time.Minute)
	cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: c.id, SizeBytes: 100, ImageDigest: "sha256:auto", CreatedAt: c.now}
	if err := c.s.Checkpoints.ReplaceAutomatic(c.t.Context(), cp, quota.Admission{}); err != nil {
		c.t.Fatal(err)
	}
	return cp.ID
}

func (c *copies) begin(id sandbox.CheckpointID, want sandbox.Code) {
	c.t.Helper()
	if err := c.BeginCopy(c.t.Context(), id); sandbox.CodeOf(err) != want {
		c.t.Errorf("BeginCopy = %v, want %q", err, want)
	}
}

func (c *copies) copied(id sandbox.CheckpointID, want sandbox.Code) {
	c.t.Helper()
	if err := c.CheckpointCopied(c.t.Context(), id, 5, c.now, quota.Admission{}); sandbox.CodeOf(err) != want {
		c.t.Errorf("CheckpointCopied = %v, want %q", err, want)
	}
}

func (c *copies) delete(id sandbox.CheckpointID) {
	c.t.Helper()
	ev := sandbox.Event{Sandbox: c.id, Time: c.now, Type: sandbox.EventCheckpointDeleted}
	if err := c.s.Checkpoints.Delete(c.t.Context(), id, ev); err != nil {
		c.t.Fatal(err)
	}
}

// want fails the test unless these checkpoints lack a copy, these stored states are unneeded, in that order, and the automatic copy is auto.
func (c *copies) want(what string, uncopied, unneeded []sandbox.CheckpointID, auto sandbox.CheckpointID) {
	c.t.Helper()
	list, err := c.UncopiedCheckpoints(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var got []sandbox.CheckpointID
	for _, cp := range list {
		got = append(got, cp.ID)
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(uncopied))) {
		c.t.Errorf("%s: checkpoints without a copy: %v, want %v", what, got, uncopied)
	}
	ids, err := c.Released(c.t.Context(), c.ws, c.now.Add(time.Hour), 10)
	if err != nil || !slices.Equal(ids, unneeded) {
		c.t.Errorf("%s: released %v, %v, want %v", what, ids, err, unneeded)
	}
	cp, err := c.AutomaticCopy(c.t.Context(), c.id)
	if err != nil || (cp == nil) != (auto == "") || cp != nil && (cp.ID != auto || cp.Sandbox != c.id || cp.ImageDigest != "sha256:auto" || cp.CreatedAt.IsZero()) {
		c.t.Errorf("%s: the automatic copy is %+v, %v, want %q", what, cp, err, auto)
	}
}

// needed fails the test unless the state is known, and forgetting it does what it says.
func (c *copies) needed(what string, id sandbox.CheckpointID, want bool) {
	c.t.Helper()
	if known, err := c.Known(c.t.Context(), id); err != nil || !known {
		c.t.Errorf("%s: known %v, %v", what, known, err)
	}
	if forgotten, err := c.Forget(c.t.Context(), id); err != nil || forgotten == want {
		c.t.Errorf("%s: forgotten %v, %v, want %v", what, forgotten, err, !want)
	}
	if known, err := c.Known(c.t.Context(), id); err != nil || known != want {
		c.t.Errorf("%s: known after Forget %v, %v, want %v", what, known, err, want)
	}
}

type ids = []sandbox.CheckpointID

// TestCopyOfNamedCheckpoint follows a copy that stays while the checkpoint has a row.
func TestCopyOfNamedCheckpoint(t *testing.T) {
	c := newCopies(t)
	id := c.named("n")
	c.want("made", ids{id}, nil, "")
	if list, err := c.s.Checkpoints.List(t.Context(), c.id); err != nil || len(list) != 1 || !list[0].CopiedAt.IsZero() {
		t.Errorf("checkpoints %+v, %v, want one without a copy", list, err)
	}
	if known, err := c.Known(t.Context(), id); err != nil || !known { // its description may be in the bucket already
		t.Errorf("known without a copy: %v, %v", known, err)
	}
	err := c.CheckpointCopied(t.Context(), id, 5, c.now, quota.Admission{Limits: quota.Limits{quota.LimitArchive: 99}})
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("copy beyond the quota = %v, want quota_exceeded", err)
	}
	c.begin(id, sandbox.Conflict) // of automatic checkpoints only
	for range 2 {
		c.copied(id, "")
		c.want("copied", nil, nil, "")
	}
	if use, err := c.s.Quotas.QuotaUse(t.Context(), c.ws); err != nil || use.ArchiveBytes != 100 || use.Disk.Checkpoints != 100 {
		t.Errorf("use %+v, %v, want 100 bytes in the object store and on the disk", use, err)
	}
	if list, err := c.s.Checkpoints.List(t.Context(), c.id); err != nil || len(list) != 1 || !list[0].CopiedAt.Equal(c.now) {
		t.Errorf("checkpoints %+v, %v, want the time of the copy", list, err)
	}
	c.needed("copied", id, true)
	if images, err := c.Images(t.Context()); err != nil || !slices.Equal(images, []string{"sha256:n"}) {
		t.Errorf("root filesystems %v, %v", images, err)
	}
	c.now = c.now.Add(time.Minute)
	c.delete(id)
	if early, err := c.Released(t.Context(), c.ws, c.now, 10); err != nil || len(early) > 0 {
		t.Errorf("released before it was deleted: %v, %v", early, err)
	}
	c.want("deleted", nil, ids{id}, "")
	c.needed("deleted", id, false)
	c.copied(id, sandbox.Conflict) // an upload that ends after the deletion
	c.want("forgotten", nil, nil, "")
}

// TestCopyOfAutomaticCheckpoint replaces automatic checkpoints before, during and after their upload.
func TestCopyOfAutomaticCheckpoint(t *testing.T) {
	c := newCopies(t)
	a := c.automatic()
	c.copied(a, sandbox.Conflict) // without a begin
	c.begin(a, "")
	c.want("begun", ids{a}, nil, "")
	c.copied(a, "")
	c.want("copied", nil, nil, a)
	b := c.automatic()
	c.want("replaced", ids{b}, nil, a)
	c.needed("replaced", a, true)
	wantDiscarded(t, c.s.Checkpoints, a, true)
	c.begin(a, sandbox.Conflict)
	c.begin(b, "")
	d := c.automatic() // while b is sent
	c.needed("being replaced", a, true)
	if known, err := c.Known(t.Context(), b); err != nil || !known {
		t.Errorf("a copy that is being made is known: %v, %v", known, err)
	}
	c.copied(b, "")
	c.want("copied after it was replaced", ids{d}, ids{a}, b)
	c.needed("two later", a, false)
	c.begin(d, "") // of an upload that fails
	e := c.automatic()
	c.begin(e, "")
	c.copied(d, sandbox.Conflict)
	c.want("another was begun", ids{e}, nil, b)
	if images, err := c.Images(t.Context()); err != nil || !slices.Equal(images, []string{"sha256:auto"}) {
		t.Errorf("root filesystems %v, %v", images, err)
	}
	if images, err := c.s.Snapshots.DigestsInUse(t.Context()); err != nil || !slices.Contains(images, "sha256:auto") {
		t.Errorf("root filesystems in use %v, %v", images, err)
	}
	named := c.named("n")
	c.copied(named, "")
	c.want("a named one is copied", ids{e}, nil, b)
	c.delete(named)
	c.want("a named one is deleted", ids{e}, ids{named}, b)
	// The sandbox goes back to another checkpoint.
	c.now = c.now.Add(time.Minute)
	c.delete(e)
	c.want("dropped", nil, ids{named, b}, "")
	c.copied(e, sandbox.Conflict)
	c.want("an upload ended after the deletion", nil, ids{named, b}, "")
}

// TestCopiesOfEndedSandbox ends a sandbox whose checkpoints are copied.
func TestCopiesOfEndedSandbox(t *testing.T) {
	c := newCopies(t)
	a, n := c.automatic(), c.named("n")
	c.begin(a, "")
	c.copied(a, "")
	c.copied(n, "")
	b := c.automatic()
	c.begin(b, "")
	c.now = c.now.Add(time.Minute)
	c.move(sandbox.Running, sandbox.Destroying)
	c.want("ending", ids{b}, nil, a)
	c.move(sandbox.Destroying, sandbox.Destroyed)
	if early, err := c.Released(t.Context(), c.ws, c.now, 10); err != nil || len(early) > 0 {
		t.Errorf("released before the end: %v, %v", early, err)
	}
	list, err := c.Released(t.Context(), c.ws, c.now.Add(time.Hour), 10)
	if err != nil || len(list) != 2 {
		t.Errorf("released after the end: %v, %v, want two", list, err)
	}
	c.copied(b, sandbox.Conflict)
}
