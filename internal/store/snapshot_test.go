package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
)

func begin(t *testing.T, s *store.Store, sn sandbox.Snapshot) sandbox.Snapshot {
	t.Helper()
	sn.ID = sandbox.NewSnapshotID()
	sn.CreatedAt = time.Now().UTC()
	if err := s.Snapshots.BeginSnapshot(t.Context(), sn, 10, 1000, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	return sn
}

func finish(t *testing.T, s *store.Store, id sandbox.SnapshotID, size int64) sandbox.Snapshot {
	t.Helper()
	g := sandbox.SnapshotResult{BaseDigest: "sha256:b", Digest: "sha256:" + string(id), SizeBytes: size, LayerBytes: 7, FileCount: 3, CreatedAt: time.Now().UTC()}
	sn, err := s.Snapshots.FinishSnapshot(t.Context(), id, g, 1<<30, quota.Admission{}, sandbox.Event{})
	if err != nil {
		t.Fatal(err)
	}
	return sn
}

func TestSnapshotRows(t *testing.T) {
	s, ws := openStore(t)
	want := begin(t, s, sandbox.Snapshot{
		Workspace: ws, Name: "n", Tag: "latest", Description: "d", Message: "m", Metadata: map[string]string{"k": "v"}, Parent: "p", Sandbox: "s",
		Image: "modbox/base:latest", Public: true, Env: map[string]string{"A": "b"}, ContentHash: "h", CreatedBy: "u",
	})
	if _, err := s.Snapshots.Snapshot(t.Context(), want.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("one being made: %v, want not_found", err)
	}
	got := finish(t, s, want.ID, 5)
	want.WorkspaceSlug, want.BaseDigest, want.Digest = got.WorkspaceSlug, "sha256:b", "sha256:"+string(want.ID)
	want.SizeBytes, want.LayerBytes, want.FileCount, want.CreatedAt = 5, 7, 3, got.CreatedAt
	if d := cmp.Diff(want, got); d != "" || got.WorkspaceSlug == "" {
		t.Errorf("snapshot (-want +got):\n%s", d)
	}
	if got, err := s.Snapshots.SnapshotByContent(t.Context(), ws, "h"); err != nil || got.ID != want.ID {
		t.Errorf("by content: %s, %v", got.ID, err)
	}

	second := finish(t, s, begin(t, s, sandbox.Snapshot{Workspace: ws, Name: "n", Tag: "latest", Parent: want.ID}).ID, 2)
	for _, slug := range []string{"", got.WorkspaceSlug} {
		if got, err := s.Snapshots.SnapshotByTag(t.Context(), ws, slug, "n", "latest"); err != nil || got.ID != second.ID {
			t.Errorf("latest is %s, %v, want %s", got.ID, err, second.ID)
		}
	}
	if got, err := s.Snapshots.TagSnapshot(t.Context(), want.ID, "latest", sandbox.Event{}); err != nil || got.Tag != "latest" {
		t.Errorf("tagged: %+v, %v", got, err)
	}
	if got, err := s.Snapshots.Snapshot(t.Context(), second.ID); err != nil || got.Tag != "" {
		t.Errorf("the tag of the other is %q, %v", got.Tag, err)
	}
	if _, err := s.Snapshots.TagSnapshot(t.Context(), "none", "x", sandbox.Event{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("tag of none: %v", err)
	}
	if err := s.Snapshots.DeleteSnapshot(t.Context(), want.ID, sandbox.Event{Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.TagSnapshot(t.Context(), want.ID, "x", sandbox.Event{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("tag of a deleted one: %v", err)
	}
	list, err := s.Snapshots.Lineage(t.Context(), second.ID, 10)
	if err != nil || len(list) != 2 || list[1].ID != want.ID || list[1].DeletedAt.IsZero() || list[1].Env != nil {
		t.Errorf("lineage %+v, %v", list, err)
	}
	if list, err := s.Snapshots.Lineage(t.Context(), second.ID, 1); err != nil || len(list) != 1 {
		t.Errorf("lineage of one: %+v, %v", list, err)
	}
}

func TestSnapshotLimits(t *testing.T) {
	s, ws := openStore(t)
	sn := begin(t, s, sandbox.Snapshot{Workspace: ws, Name: "n"})
	next := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Workspace: ws, Name: "m"}
	if err := s.Snapshots.BeginSnapshot(t.Context(), next, 1, 1000, quota.Admission{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("beyond the number: %v", err)
	}
	finish(t, s, sn.ID, 100)
	if digests, err := s.Snapshots.DigestsInUse(t.Context()); err != nil || len(digests) != 1 {
		t.Errorf("in use: %v, %v", digests, err)
	}
	if err := s.Snapshots.BeginSnapshot(t.Context(), next, 2, 100, quota.Admission{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("beyond the size: %v", err)
	}
	if err := s.Snapshots.DeleteSnapshot(t.Context(), sn.ID, sandbox.Event{Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if digests, err := s.Snapshots.DigestsInUse(t.Context()); err != nil || len(digests) != 0 {
		t.Errorf("in use after the end: %v, %v", digests, err)
	}
	if err := s.Snapshots.BeginSnapshot(t.Context(), next, 1, 100, quota.Admission{}); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	if err := s.Snapshots.AbandonSnapshot(t.Context(), next.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.FinishSnapshot(t.Context(), next.ID, sandbox.SnapshotResult{}, 1<<30, quota.Admission{}, sandbox.Event{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("an abandoned one: %v", err)
	}
}

func TestSnapshotList(t *testing.T) {
	s, ws := openStore(t)
	ids := map[string]sandbox.SnapshotID{}
	for i, name := range []string{"b", "c", "a"} {
		ids[name] = finish(t, s, begin(t, s, sandbox.Snapshot{Workspace: ws, Name: name, Tag: "latest", Public: name == "c"}).ID, int64(10-i)).ID
	}
	for _, c := range []struct {
		name  string
		ws    sandbox.WorkspaceID
		f     sandbox.SnapshotFilter
		want  []string
		total int
	}{
		{"newest first", ws, sandbox.SnapshotFilter{}, []string{"a", "c", "b"}, 3},
		{"oldest first", ws, sandbox.SnapshotFilter{Ascending: true}, []string{"b", "c", "a"}, 3},
		{"by name", ws, sandbox.SnapshotFilter{Sort: sandbox.SortName, Ascending: true}, []string{"a", "b", "c"}, 3},
		{"by size", ws, sandbox.SnapshotFilter{Sort: sandbox.SortSize}, []string{"b", "c", "a"}, 3},
		{"part", ws, sandbox.SnapshotFilter{Limit: 1, Offset: 1}, []string{"c"}, 3},
		{"name", ws, sandbox.SnapshotFilter{Name: "b"}, []string{"b"}, 1},
		{"public", "", sandbox.SnapshotFilter{}, []string{"c"}, 1},
		{"of another", "w", sandbox.SnapshotFilter{}, nil, 0},
	} {
		c.f.Count = true
		page, err := s.Snapshots.Snapshots(t.Context(), c.ws, c.f)
		var got []string
		for _, sn := range page.Snapshots {
			got = append(got, sn.Name)
		}
		if d := cmp.Diff(c.want, got); d != "" || err != nil || page.Total != c.total {
			t.Errorf("%s: total %d, %v (-want +got):\n%s", c.name, page.Total, err, d)
		}
	}
	for _, f := range []sandbox.SnapshotFilter{
		{Sort: sandbox.SortCreated}, {Sort: sandbox.SortName, Ascending: true}, {Sort: sandbox.SortSize}, {Sort: sandbox.SortFiles},
	} {
		whole, err := s.Snapshots.Snapshots(t.Context(), ws, f)
		if err != nil {
			t.Fatal(err)
		}
		var got []sandbox.Snapshot
		for f.Limit = 1; ; {
			part, err := s.Snapshots.Snapshots(t.Context(), ws, f)
			if err != nil || len(part.Snapshots) != 1 {
				t.Fatalf("%+v: %d snapshots, %v", f, len(part.Snapshots), err)
			}
			got = append(got, part.Snapshots...)
			if f.Cursor = part.Next; f.Cursor == "" {
				break
			}
		}
		if d := cmp.Diff(whole.Snapshots, got); d != "" {
			t.Errorf("pages sorted by %s (-want +got):\n%s", f.Sort, d)
		}
	}
	for _, f := range []sandbox.SnapshotFilter{{Limit: 1001}, {Offset: -1}, {Sort: "x"}, {Cursor: "x"}} {
		if _, err := s.Snapshots.Snapshots(t.Context(), ws, f); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%+v: %v, want invalid", f, err)
		}
	}
}

func TestPurgeOfDeletedSnapshots(t *testing.T) {
	s, ws := openStore(t)
	deleted := time.Now().Add(-time.Hour)
	grown := func(parent sandbox.SnapshotID, gone bool) sandbox.SnapshotID {
		t.Helper()
		sn := finish(t, s, begin(t, s, sandbox.Snapshot{Workspace: ws, Name: "n", Parent: parent}).ID, 1)
		if gone {
			if err := s.Snapshots.DeleteSnapshot(t.Context(), sn.ID, sandbox.Event{Time: deleted}); err != nil {
				t.Fatal(err)
			}
		}
		return sn.ID
	}
	ancestor := grown("", true)
	child := grown(ancestor, false) // still there, and came from it
	first := grown("", true)
	second := grown(first, true) // goes, and then the first
	used := grown("", true)
	c := creation(ws, "made from it")
	c.Sandbox.Snapshot = used
	create(t, s, c)
	purge := func(before time.Time) int64 {
		t.Helper()
		n, err := s.Sandboxes.Purge(t.Context(), time.Now(), before, 10)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := purge(deleted.Add(-time.Minute)); n != 0 {
		t.Errorf("%d went before their time", n)
	}
	for _, want := range []int64{1, 1, 0} {
		if n := purge(time.Now()); n != want {
			t.Errorf("Purge = %d, want %d", n, want)
		}
	}
	for id, kept := range map[sandbox.SnapshotID]bool{ancestor: true, child: true, first: false, second: false, used: true} {
		_, err := s.Snapshots.Snapshot(t.Context(), id)
		if kept && err != nil || !kept && sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("snapshot %s: %v, kept should be %v", id, err, kept)
		}
	}
}

// TestSnapshotsMayTakeSoMuch checks that the snapshots of a workspace do not exceed their limit with what the last adds and what lies
// below it, and that the error has the sizes and the name of the limit.
func TestSnapshotsMayTakeSoMuch(t *testing.T) {
	s, ws := openStore(t)
	for _, c := range []struct {
		digest          string
		refused, enough int64
		adds            string
	}{{"sha256:1", 599, 600, "adds 600,"}, {"sha256:2", 699, 700, "adds 100,"}} {
		id := begin(t, s, sandbox.Snapshot{Workspace: ws, Name: "n"}).ID
		finish := func(maxBytes int64) error {
			g := sandbox.SnapshotResult{Digest: c.digest, SizeBytes: 100, Below: []sandbox.RootFS{{Digest: "sha256:image", SizeBytes: 500}}, CreatedAt: time.Now().UTC()}
			_, err := s.Snapshots.FinishSnapshot(t.Context(), id, g, maxBytes, quota.Admission{}, sandbox.Event{})
			return err
		}
		err := finish(c.refused)
		if sandbox.CodeOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), c.adds) || !strings.Contains(err.Error(), "snapshot.max_bytes") {
			t.Errorf("with %d bytes: %v, want quota_exceeded, %q and the name of the limit", c.refused, err, c.adds)
		}
		if err := finish(c.enough); err != nil {
			t.Errorf("with %d bytes: %v", c.enough, err)
		}
	}
	if use, err := s.Quotas.QuotaUse(t.Context(), ws); err != nil || use.Disk.Snapshots != 700 {
		t.Errorf("snapshots take %d, %v, want 700", use.Disk.Snapshots, err)
	}
}

// TestWhatLiesBelowSnapshotsCounts checks that what snapshots lie over takes space for as long as one of them needs it, once, and
// that the quota refuses a snapshot that does not fit with what lies below.
func TestWhatLiesBelowSnapshotsCounts(t *testing.T) {
	s, ws := openStore(t)
	sizes := map[string]int64{"image": 500, "1": 100, "2": 10, "3": 1, "foreign": 5000}
	a := quota.Admission{}
	try := func(digest string, below ...string) (sandbox.SnapshotID, error) {
		id := begin(t, s, sandbox.Snapshot{Workspace: ws, Name: "n"}).ID
		g := sandbox.SnapshotResult{Digest: digest, SizeBytes: sizes[digest], CreatedAt: time.Now().UTC()}
		for _, b := range below {
			g.Below = append(g.Below, sandbox.RootFS{Digest: b, SizeBytes: sizes[b]})
		}
		_, err := s.Snapshots.FinishSnapshot(t.Context(), id, g, 1<<30, a, sandbox.Event{})
		return id, err
	}
	made := func(digest string, below ...string) sandbox.SnapshotID {
		t.Helper()
		id, err := try(digest, below...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	drop := func(id sandbox.SnapshotID) {
		t.Helper()
		if err := s.Snapshots.DeleteSnapshot(t.Context(), id, sandbox.Event{Time: time.Now().UTC()}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, bytes int64) {
		t.Helper()
		if use, err := s.Quotas.QuotaUse(t.Context(), ws); err != nil || use.Disk.Snapshots != bytes {
			t.Errorf("%s: snapshots take %d, %v, want %d", when, use.Disk.Snapshots, err, bytes)
		}
	}
	a.Limits = quota.Limits{quota.LimitDisk: 599}
	refused, err := try("1", "image")
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), "quota of disk") {
		t.Errorf("beyond the quota with what lies below: %v, want quota_exceeded and its name", err)
	}
	want("after a refusal", 0)
	for range 2 {
		if err := s.Snapshots.AbandonSnapshot(t.Context(), refused, "sha256:1"); err != nil {
			t.Fatal(err)
		}
	}
	if digests, err := s.Snapshots.DigestsReleased(t.Context()); err != nil || !slices.Equal(digests, []string{"sha256:1"}) {
		t.Errorf("released after a refusal: %v, %v, want the root filesystem of the refused snapshot", digests, err)
	}
	a.Limits[quota.LimitDisk] = 811
	first := made("1", "image")
	twin := made("1", "image")
	second := made("2", "1", "image")
	third := made("3", "2", "1", "image")
	want("all", 711)
	if id, err := try("4", "foreign"); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("over another image beyond the quota: %v", err)
	} else if err := s.Snapshots.AbandonSnapshot(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	drop(first)
	want("without a twin", 611)
	drop(twin)
	drop(second)
	want("without the twins and the second, on which the third lies", 611)
	if n, err := s.Sandboxes.Purge(t.Context(), time.Now(), time.Now(), 10); err != nil || n != 3 {
		t.Errorf("Purge = %d, %v, want 3", n, err)
	}
	want("without the rows of what the third lies over", 611)
	drop(third)
	want("without any", 0)
}
