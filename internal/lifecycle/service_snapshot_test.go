package lifecycle_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Stack is Commit, over a base that counts with belowBytes.
func (c *images) Stack(ctx context.Context, _ sandbox.WorkspaceID, base string, layer io.Reader) (prepare.Layered, error) {
	done, err := c.Commit(ctx, base, layer)
	done.Below = []sandbox.RootFS{{Digest: base, SizeBytes: c.belowBytes}}
	return done, err
}

// CommitCached is Commit for what is found again by key.
func (c *images) CommitCached(ctx context.Context, as prepare.CacheEntry, base string, layer io.Reader) (prepare.Layered, error) {
	if err := as.CheckSpace(ctx, max(1, c.layerBytes)); err != nil {
		return prepare.Layered{}, err
	}
	done, err := c.Commit(ctx, base, layer)
	if err != nil {
		return done, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cached == nil {
		c.cached = map[string]string{}
	}
	c.cached[as.Key] = done.Digest
	c.payers = append(c.payers, as.Workspace)
	return done, nil
}

func (c *images) Cached(ctx context.Context, ws sandbox.WorkspaceID, key string, _ time.Duration) (spec.Image, string, error) {
	c.mu.Lock()
	digest := c.cached[key]
	if digest != "" && ws != "" {
		c.payers = append(c.payers, ws)
	}
	c.mu.Unlock()
	if digest == "" {
		return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "nothing was made for this yet")
	}
	return c.Resolve(ctx, digest)
}

// cachedFor returns the workspaces that had what is cached.
func (c *images) cachedFor() []sandbox.WorkspaceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.payers)
}

// Hold counts.
func (c *images) Hold(_ context.Context, digest string) (func(), error) {
	count := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.held == nil {
			c.held = map[string]int{}
		}
		c.held[digest] += by
	}
	count(1)
	return func() { count(-1) }, nil
}

// holders returns how many hold a digest.
func (c *images) holders(digest string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[digest]
}

// holding returns how many hold something.
func (c *images) holding() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, holders := range c.held {
		n += holders
	}
	return n
}

// Collect removes what has no name and is not in use, once that is aged.
func (c *images) Collect(ctx context.Context, inUse func(context.Context) ([]string, error)) (freed int64, err error) {
	needed, err := inUse(ctx)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(slices.Clone(c.list), func(img spec.Image) bool {
		gone := c.aged && img.Name == "" && !slices.Contains(needed, img.Digest)
		if gone {
			freed += img.SizeBytes
		}
		return gone
	})
	return freed, nil
}

func (d *faultyDriver) WriteNames(ctx context.Context, id sandbox.ID, w io.Writer) error {
	return d.faults.do("driver.WriteNames", func() error { return d.Driver.(driver.Snapshotter).WriteNames(ctx, id, w) })
}

func (d *faultyDriver) WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error {
	return d.faults.do("driver.WriteLayer", func() error { return d.Driver.(driver.Snapshotter).WriteLayer(ctx, id, w) })
}

func (s *faultyStore) BeginSnapshot(ctx context.Context, sn sandbox.Snapshot, most int, maxBytes int64, a quota.Admission) error {
	return s.faults.do("store.BeginSnapshot", func() error { return s.storeRows.BeginSnapshot(ctx, sn, most, maxBytes, a) })
}

func (s *faultyStore) FinishSnapshot(ctx context.Context, id sandbox.SnapshotID, g sandbox.SnapshotResult, maxBytes int64, a quota.Admission, ev sandbox.Event) (sn sandbox.Snapshot, err error) {
	err = s.faults.do("store.FinishSnapshot", func() error {
		sn, err = s.storeRows.FinishSnapshot(ctx, id, g, maxBytes, a, ev)
		return err
	})
	return sn, err
}

func (s *faultyStore) AbandonSnapshot(ctx context.Context, id sandbox.SnapshotID, digest string) error {
	return s.faults.do("store.AbandonSnapshot", func() error { return s.storeRows.AbandonSnapshot(ctx, id, digest) })
}

func (s *server) snap(ref string, req snapshot.Request) sandbox.Snapshot {
	s.t.Helper()
	sn, err := s.Snapshots().Create(s.t.Context(), s.caller, ref, req)
	if err != nil {
		s.t.Fatalf("CreateSnapshot(%q): %v", ref, err)
	}
	return sn
}

func TestSnapshot(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "one")
	first := s.snap("s", snapshot.Request{Name: "n", Description: "d", Metadata: map[string]string{"k": "v"}})
	if first.Tag != "latest" || first.Sandbox != sb.ID || first.BaseDigest != "sha256:1" || first.Parent != "" || first.LayerBytes == 0 || first.WorkspaceSlug == "" {
		t.Errorf("snapshot %+v", first)
	}
	s.write("s", "/a", "two")
	s.pause("s")
	second := s.snap("s", snapshot.Request{Name: "n"})
	if second.Parent != first.ID || second.Digest == first.Digest {
		t.Errorf("second snapshot %+v", second)
	}
	s.Sweep()
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes after a snapshot of a paused sandbox: %v", ids)
	}
	for ref, want := range map[string]sandbox.SnapshotID{
		"n": second.ID, "n:latest": second.ID, string(first.ID): first.ID, second.FullName(): second.ID,
	} {
		if got, err := s.Snapshots().Get(t.Context(), e.caller, ref); err != nil || got.ID != want {
			t.Errorf("Snapshot(%q) = %s, %v, want %s", ref, got.ID, err, want)
		}
	}
	tag := "other"
	for _, to := range []*string{&tag, nil} {
		if _, err := s.Snapshots().Tag(t.Context(), e.caller, string(first.ID), to); err != nil {
			t.Fatal(err)
		}
	}
	throwaway := s.snap("s", snapshot.Request{Name: "throwaway"})
	for range 2 { // the second time there is nothing to tell
		_ = s.Snapshots().Delete(t.Context(), e.caller, string(throwaway.ID))
	}
	wantEvents := []sandbox.EventType{
		sandbox.EventSnapshotCreated, sandbox.EventSnapshotTagged, sandbox.EventSnapshotTagged, sandbox.EventSnapshotCreated, sandbox.EventSnapshotDeleted,
	}
	if got := s.eventTypes("s"); !slices.Equal(got[len(got)-len(wantEvents):], wantEvents) {
		t.Errorf("events %v, want them to end with %v", got, wantEvents)
	}

	child := s.run(lifecycle.CreateRequest{Snapshot: "n", Env: map[string]string{"A": "b"}})
	if child.ImageDigest != second.Digest || child.Snapshot != second.ID || child.Image != sb.Image {
		t.Errorf("sandbox made from it: %+v", child)
	}
	if spec, _ := s.driver.specs.Load(child.ID); !strings.Contains(spec.(driver.Spec).RootFS, second.Digest) {
		t.Errorf("its root filesystem is %v", spec)
	}
	third := s.snap(string(child.ID), snapshot.Request{Name: "n", Tag: "v3"})
	if err := s.Snapshots().Delete(t.Context(), e.caller, "n"); err != nil {
		t.Fatal(err)
	}
	lineage, err := s.Snapshots().Lineage(t.Context(), e.caller, "n:v3", page.Request{})
	var got []sandbox.SnapshotID
	for _, sn := range lineage.Items {
		got = append(got, sn.ID)
	}
	if d := cmp.Diff([]sandbox.SnapshotID{third.ID, second.ID, first.ID}, got); d != "" || err != nil || lineage.Items[1].DeletedAt.IsZero() {
		t.Errorf("lineage, %v (-want +got):\n%s", err, d)
	}
	if _, err := s.Snapshots().Get(t.Context(), e.caller, string(second.ID)); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("deleted snapshot: %v", err)
	}
	s.pause(string(child.ID))
	s.resume(string(child.ID)) // its source is deleted
}

// TestSnapshotIsCollectedWhenNothingNeedsIt deletes a snapshot that a sandbox was
// made from, paused at last.
func TestSnapshotIsCollectedWhenNothingNeedsIt(t *testing.T) {
	e := newEnv(t)
	e.images.aged = true
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	sn := s.snap("s", snapshot.Request{Name: "n"})
	s.run(lifecycle.CreateRequest{Name: "child", Snapshot: "n"})
	s.pause("child")
	kept := func() bool {
		_, _, err := e.images.Resolve(t.Context(), sn.Digest)
		return err == nil
	}
	if err := s.Snapshots().Delete(t.Context(), e.caller, "n"); err != nil {
		t.Fatal(err)
	}
	if s.Sweep(); !kept() {
		t.Error("the root filesystem of a paused sandbox is gone")
	}
	s.destroy("child")
	other := s.snap("s", snapshot.Request{Name: "other"})
	if err := s.Snapshots().Delete(t.Context(), e.caller, string(other.ID)); err != nil {
		t.Fatal(err)
	}
	if s.Sweep(); kept() {
		t.Error("the root filesystem is there although nothing needs it")
	}
	if _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Snapshot: string(sn.ID)}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a sandbox of a deleted snapshot: %v", err)
	}
}

// TestBaseOfASnapshotCounts: the root filesystem below the snapshots of a workspace counts once for its quota, and a
// snapshot that does not fit with it is refused, and its root filesystem, which keeps the base, is released.
func TestBaseOfASnapshotCounts(t *testing.T) {
	e := newEnv(t)
	e.images.belowBytes = 1 << 36
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "one")
	before := s.used().Disk
	s.setQuota(quota.Limits{quota.LimitDisk: before.Total() + 1<<36})
	_, err := s.Snapshots().Create(t.Context(), e.caller, "s", snapshot.Request{Name: "n"})
	wantRefused(t, "a snapshot over a base beyond the quota", err, quota.LimitDisk)
	if used := s.used().Disk; used != before {
		t.Errorf("after a refused snapshot the workspace uses %+v, want %+v as before", used, before)
	}
	all, err := e.images.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	released, err := s.store.store.Snapshots.DigestsReleased(t.Context())
	if layer := all[len(all)-1]; err != nil || layer.Name != "" || !slices.Contains(released, layer.Digest) {
		t.Errorf("released are %v, %v, want the root filesystem of the refused snapshot, %s", released, err, layer.Digest)
	}
	s.setQuota(quota.Limits{quota.LimitDisk: before.Total() + 1<<36 + 1<<20})
	first := s.snap("s", snapshot.Request{Name: "n"})
	s.write("s", "/a", "two")
	second := s.snap("s", snapshot.Request{Name: "n"})
	if used, want := s.used().Disk.Snapshots, 1<<36+first.SizeBytes+second.SizeBytes; used != want {
		t.Errorf("two snapshots over one base take %d bytes, want %d", used, want)
	}
}

func TestSnapshotRequestsThatAreRefused(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxSnapshots = 1
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	for field, req := range map[string]snapshot.Request{
		"name":        {Name: "a b"},
		"tag":         {Name: "a", Tag: "-x"},
		"description": {Description: strings.Repeat("x", 2000)},
		"message":     {Message: strings.Repeat("x", 2000)},
	} {
		_, err := s.Snapshots().Create(t.Context(), e.caller, "s", req)
		wantInvalid(t, err, field)
	}
	if _, err := s.Snapshots().Create(t.Context(), e.caller, "no", snapshot.Request{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("of no sandbox: %v", err)
	}
	for _, ref := range []string{"none", "none:x", "a b", "@x", "@x/y:", sandboxIDText()} {
		_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Snapshot: ref})
		wantInvalid(t, err, "snapshot")
	}
	_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Snapshot: "x", Image: "modbox/base"})
	wantInvalid(t, err, "snapshot")
	s.snap("s", snapshot.Request{})
	if _, err := s.Snapshots().Create(t.Context(), e.caller, "s", snapshot.Request{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many: %v", err)
	}
	s.destroy("s")
	if _, err := s.Snapshots().Create(t.Context(), e.caller, "s", snapshot.Request{}); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("of an ended sandbox: %v", err)
	}
}

func sandboxIDText() string { return string(sandbox.NewID()) }

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	e, ok := err.(*sandbox.Error)
	if !ok || e.Code != sandbox.Invalid || e.Field != field {
		t.Errorf("error %v, want invalid naming %s", err, field)
	}
}

// TestSnapshotCutShort kills the server before and after each of its steps.
func TestSnapshotCutShort(t *testing.T) {
	for _, paused := range []bool{false, true} {
		prepare := func(s *server) {
			s.run(lifecycle.CreateRequest{Name: "s"})
			s.write("s", "/a", "one")
			if paused {
				s.pause("s")
			}
		}
		e := newEnvHere(t)
		s := e.start()
		prepare(s)
		before := len(s.driver.faults.called())
		s.snap("s", snapshot.Request{Name: "n"})
		steps := len(s.driver.faults.called()) - before
		s.stop()
		for step := 1; step <= steps; step++ {
			for _, after := range []bool{false, true} {
				e := newEnvHere(t)
				s := e.start()
				prepare(s)
				at := len(s.driver.faults.called()) + step
				die := func(n int, _ string) error {
					if n != at {
						return nil
					}
					s.driver.faults.die()
					return errDead
				}
				if after {
					s.driver.faults.on(nil, die)
				} else {
					s.driver.faults.on(die, nil)
				}
				_, err := s.Snapshots().Create(t.Context(), e.caller, "s", snapshot.Request{Name: "n"})
				if err == nil {
					t.Errorf("step %d: the snapshot of a killed server succeeded", step)
				}
				s.stop()
				s = e.start()
				s.Sweep()
				list, err := s.Snapshots().List(t.Context(), e.caller, sandbox.SnapshotFilter{Count: true})
				if err != nil || list.Total > 1 || list.Total == 1 && list.Snapshots[0].Digest == "" {
					t.Errorf("step %d after %v: snapshots %+v, %v", step, after, list, err)
				}
				if begun, err := s.store.SnapshotsBegun(t.Context()); len(begun) != 0 || err != nil {
					t.Errorf("step %d after %v: left being made: %v, %v", step, after, begun, err)
				}
				if ids := e.host.ids(); len(ids) > 1 || paused && len(ids) > 0 {
					t.Errorf("step %d after %v: boxes %v", step, after, ids)
				}
				s.snap("s", snapshot.Request{Name: "n"})
				s.stop()
			}
		}
	}
}
