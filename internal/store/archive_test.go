package store_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestCopiedState follows a state that is copied while its sandbox is paused, and released by the resume.
func TestCopiedState(t *testing.T) {
	s, ws := openStore(t)
	now := time.Now().UTC()
	sb := create(t, s, creation(ws, "a"))
	ev := sandbox.Event{Sandbox: sb.ID, Time: now, Type: sandbox.EventPaused}
	saved, size := sandbox.NewCheckpointID(), int64(1000)
	archives := s.Sandboxes.Archives()
	move := func(from, to sandbox.State, c sandbox.Change) {
		t.Helper()
		if _, err := s.Sandboxes.Transition(t.Context(), sb.ID, from, to, c, ev); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, disk, archived int64, uncopied, images, released int) {
		t.Helper()
		use, err := s.Quotas.QuotaUse(t.Context(), ws)
		if err != nil || use.Disk.Paused != disk || use.ArchiveBytes != archived {
			t.Errorf("%s: paused %d, archive %d, %v, want %d and %d", what, use.Disk.Paused, use.ArchiveBytes, err, disk, archived)
		}
		left, err := archives.Uncopied(t.Context())
		if err != nil || len(left) != uncopied {
			t.Errorf("%s: states without a copy %v, %v, want %d", what, left, err, uncopied)
		}
		roots, err := archives.Images(t.Context())
		if err != nil || len(roots) != images {
			t.Errorf("%s: root filesystems %v, %v, want %d", what, roots, err, images)
		}
		ids, err := archives.Released(t.Context(), ws, ev.Time.Add(time.Second), 10)
		if err != nil || len(ids) != released {
			t.Errorf("%s: released %v, %v, want %d", what, ids, err, released)
		}
	}
	move(sandbox.Provisioning, sandbox.Running, sandbox.Change{})
	want("running", 0, 0, 0, 0, 0)
	move(sandbox.Running, sandbox.Pausing, sandbox.Change{Saved: &saved})
	move(sandbox.Pausing, sandbox.Paused, sandbox.Change{SavedBytes: &size})
	want("paused", size, 0, 1, 0, 0)
	small := quota.Admission{Limits: quota.Limits{quota.LimitArchive: 999}}
	if err := s.Sandboxes.Copied(t.Context(), sb.ID, saved, 5, now, small); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("copy beyond the quota = %v, want quota_exceeded", err)
	}
	if err := s.Sandboxes.Copied(t.Context(), sb.ID, sandbox.NewCheckpointID(), 5, now, quota.Admission{}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("copy of another state = %v, want conflict", err)
	}
	for range 2 {
		if err := s.Sandboxes.Copied(t.Context(), sb.ID, saved, 5, now, quota.Admission{}); err != nil {
			t.Fatal(err)
		}
		want("copied", size, size, 0, 1, 0)
	}
	if forgotten, err := archives.Forget(t.Context(), saved); err != nil || forgotten {
		t.Errorf("forget the copy of a paused sandbox = %v, %v", forgotten, err)
	}
	ev.Time = now.Add(time.Hour) // from which the copy stays for a time
	move(sandbox.Paused, sandbox.Resuming, sandbox.Change{})
	move(sandbox.Resuming, sandbox.Running, sandbox.Change{Saved: new(sandbox.CheckpointID), SavedBytes: new(int64)})
	want("resumed", 0, size, 0, 0, 1)
	if ids, err := archives.Released(t.Context(), ws, now.Add(time.Minute), 10); err != nil || len(ids) > 0 {
		t.Errorf("released before the resume: %v, %v", ids, err)
	}
	if err := s.Sandboxes.Copied(t.Context(), sb.ID, saved, 5, now, quota.Admission{}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("copy of a running sandbox = %v, want conflict", err)
	}
}

// TestArchivedStateCountsUntilItIsForgotten follows a state through a sandbox's archive, fetch, archive and resume.
func TestArchivedStateCountsUntilItIsForgotten(t *testing.T) {
	s, ws := openStore(t)
	now := time.Now().UTC()
	sb := create(t, s, creation(ws, "a"))
	ev := sandbox.Event{Sandbox: sb.ID, Time: now, Type: sandbox.EventPaused}
	saved, size := sandbox.NewCheckpointID(), int64(1000)
	for _, step := range []struct {
		from, to sandbox.State
		change   sandbox.Change
	}{
		{sandbox.Provisioning, sandbox.Running, sandbox.Change{}},
		{sandbox.Running, sandbox.Pausing, sandbox.Change{Saved: &saved}},
		{sandbox.Pausing, sandbox.Paused, sandbox.Change{SavedBytes: &size}},
	} {
		if _, err := s.Sandboxes.Transition(t.Context(), sb.ID, step.from, step.to, step.change, ev); err != nil {
			t.Fatal(err)
		}
	}
	archives := s.Sandboxes.Archives()
	want := func(what string, disk, archived int64, released int, known bool) {
		t.Helper()
		use, err := s.Quotas.QuotaUse(t.Context(), ws)
		if err != nil || use.Disk.Paused != disk || use.ArchiveBytes != archived {
			t.Errorf("%s: paused %d, archive %d, %v, want %d and %d", what, use.Disk.Paused, use.ArchiveBytes, err, disk, archived)
		}
		ids, err := archives.Released(t.Context(), ws, now.Add(time.Hour), 10)
		if err != nil || len(ids) != released {
			t.Errorf("%s: released %v, %v, want %d", what, ids, err, released)
		}
		if got, err := archives.Known(t.Context(), saved); err != nil || got != known {
			t.Errorf("%s: known %v, %v, want %v", what, got, err, known)
		}
	}
	want("paused", size, 0, 0, true)
	small := quota.Admission{Limits: quota.Limits{quota.LimitArchive: 999, quota.LimitDisk: 999}}
	if _, err := s.Sandboxes.Archive(t.Context(), sb.ID, saved, 5, ev, small); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("archive beyond the quota = %v, want quota_exceeded", err)
	}
	if _, err := s.Sandboxes.Archive(t.Context(), sb.ID, sandbox.NewCheckpointID(), 5, ev, quota.Admission{}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("archive of another state = %v, want conflict", err)
	}
	for range 2 {
		row, err := s.Sandboxes.Archive(t.Context(), sb.ID, saved, 5, ev, quota.Admission{})
		if err != nil || row.ArchivedAt.IsZero() || row.State != sandbox.Paused {
			t.Fatalf("archive = %+v, %v", row, err)
		}
		want("archived", 0, size, 0, true)
	}
	if forgotten, err := archives.Forget(t.Context(), saved); err != nil || forgotten {
		t.Errorf("forget a state in use = %v, %v", forgotten, err)
	}
	if _, err := s.Sandboxes.Fetched(t.Context(), sb.ID, saved, size, ev, small); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("fetch beyond the quota = %v, want quota_exceeded", err)
	}
	size += 8 // on this disk
	for range 2 {
		if row, err := s.Sandboxes.Fetched(t.Context(), sb.ID, saved, size, ev, quota.Admission{}); err != nil || !row.ArchivedAt.IsZero() {
			t.Fatalf("fetched = %+v, %v", row, err)
		}
		want("fetched", size, size-8, 0, true)
		if forgotten, err := archives.Forget(t.Context(), saved); err != nil || forgotten {
			t.Errorf("forget a state that a sandbox is paused with = %v, %v", forgotten, err)
		}
	}
	if _, err := s.Sandboxes.Archive(t.Context(), sb.ID, saved, 5, ev, quota.Admission{Limits: quota.Limits{quota.LimitArchive: size}}); err != nil {
		t.Fatal(err)
	}
	want("archived again", 0, size, 0, true)
	row, err := s.Sandboxes.Transition(t.Context(), sb.ID, sandbox.Paused, sandbox.Destroying, sandbox.Change{Saved: new(sandbox.CheckpointID)}, ev)
	if err != nil || !row.ArchivedAt.IsZero() {
		t.Fatalf("end = %+v, %v", row, err)
	}
	want("ended", 0, size, 1, true)
	if forgotten, err := archives.Forget(t.Context(), saved); err != nil || !forgotten {
		t.Errorf("forget = %v, %v", forgotten, err)
	}
	want("forgotten", 0, 0, 0, false)
}

// TestSentBytesAreAdded counts what a workspace has sent to the object store.
func TestSentBytesAreAdded(t *testing.T) {
	s, ws := openStore(t)
	archives := s.Sandboxes.Archives()
	want := func(what string, sent int64) {
		t.Helper()
		if got, err := archives.Sent(t.Context(), ws); err != nil || got != sent {
			t.Errorf("%s: %d sent, %v, want %d", what, got, err, sent)
		}
		if any, err := archives.Any(t.Context()); err != nil || any != (sent > 0) {
			t.Errorf("%s: Any = %v, %v", what, any, err)
		}
	}
	want("at first", 0)
	for range 2 {
		if err := archives.AddSent(t.Context(), ws, 5<<30); err != nil {
			t.Fatal(err)
		}
	}
	want("after two uploads", 10<<30)
	if got, err := archives.Sent(t.Context(), "another"); err != nil || got != 0 {
		t.Errorf("another workspace has sent %d, %v", got, err)
	}
	if err := archives.ClearSent(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("after a collection", 0)
}
