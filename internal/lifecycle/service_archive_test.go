package lifecycle_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// archiving is newEnv with an object store.
func archiving(t *testing.T) *env {
	e := newEnv(t)
	e.cfg.Archive = archiver.Config{URL: "file://" + filepath.Join(t.TempDir(), "bucket"), Grace: time.Hour, Installation: "i"}
	return e
}

// TestArchiveBesideEverythingElse archives, resumes and pauses a sandbox at the same time: nothing but a conflict happens, and it keeps its file.
func TestArchiveBesideEverythingElse(t *testing.T) {
	e := archiving(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "kept")
	var g sync.WaitGroup
	for _, do := range []func() error{
		func() error { _, err := s.Archives().Archive(t.Context(), s.caller, "s"); return err },
		func() error { _, err := s.Archives().Archive(t.Context(), s.caller, "s"); return err },
		func() error { _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); return err },
		func() error { _, err := s.Pause(t.Context(), s.caller, "s"); return err },
	} {
		g.Go(func() {
			for range 30 {
				if err := do(); err != nil && sandbox.CodeOf(err) != sandbox.Conflict {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	s.pause("s")
	if sb, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil || sb.ArchivedAt.IsZero() || len(e.saved(string(sb.ID))) != 0 {
		t.Fatalf("archive = %+v, %v; on the disk %v", sb, err, e.saved(string(sb.ID)))
	}
	// Callers share the fetch.
	for range 10 {
		g.Go(func() {
			if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	fetched := 0
	for _, typ := range s.eventTypes("s") {
		switch typ {
		case sandbox.EventArchived:
			fetched = 0
		case sandbox.EventFetched:
			fetched++
		}
	}
	if got := s.readFile("s", "/a"); got != "kept" || fetched != 1 {
		t.Errorf("file %q after %d fetches, want kept after 1", got, fetched)
	}
}

// TestCopiedStateOutlivesItsDisk copies the state of a paused sandbox, by a server that is killed before it has recorded the copy, and by the next. Then it loses the disk.
// Another server resumes the sandbox.
func TestCopiedStateOutlivesItsDisk(t *testing.T) {
	e := archiving(t)
	e.cfg.Archive.Copies = true
	s := e.prepare()
	sent := make(chan struct{})
	s.store.faults.on(func(_ int, call string) error {
		if call == "archives.Copied" {
			s.store.faults.die()
			close(sent)
		}
		return nil
	}, nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "kept")
	s.pause("s")
	<-sent
	s.kill()
	s = e.start()
	eventually(t, "the state is copied", func() bool {
		left, err := s.store.store.Sandboxes.Archives().Uncopied(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	if got := s.get("s"); !got.ArchivedAt.IsZero() || len(e.saved(string(sb.ID))) != 1 {
		t.Errorf("archived at %s, on the disk %v; want a copy only", got.ArchivedAt, e.saved(string(sb.ID)))
	}
	s.stop()
	if err := os.RemoveAll(filepath.Join(e.cfg.CheckpointDir, string(sb.ID))); err != nil {
		t.Fatal(err)
	}
	s = e.start()
	if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := s.readFile("s", "/a"); got != "kept" {
		t.Errorf("file %q, want kept", got)
	}
}

// TestCollectionBesideUploads removes unused data while sandboxes are archived again and again: neither refuses the other.
func TestCollectionBesideUploads(t *testing.T) {
	e := archiving(t)
	s := e.start()
	var g sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		s.run(lifecycle.CreateRequest{Name: name})
		g.Go(func() {
			for range 10 {
				s.pause(name)
				if _, err := s.Archives().Archive(t.Context(), s.caller, name); err != nil {
					t.Error(err)
				}
				if _, err := s.Resume(t.Context(), s.caller, name, lifecycle.ResumeRequest{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Go(func() {
		for range 20 {
			if !s.Archives().Collect(t.Context()) {
				t.Error("unused data was not removed")
			}
		}
	})
	g.Wait()
}

// TestReleasedStatesMakeSpace archives a sandbox again and again, with a quota for one state.
func TestReleasedStatesMakeSpace(t *testing.T) {
	e := archiving(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	s.pause("s")
	size := s.get("s").SavedBytes
	if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: size + size/2}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
			t.Fatal(err)
		}
		s.pause("s")
	}
	if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
		t.Fatal(err)
	}
	s.run(lifecycle.CreateRequest{Name: "other"})
	s.pause("other")
	if _, err := s.Archives().Archive(t.Context(), s.caller, "other"); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("archive beside a state in use = %v, want quota_exceeded", err)
	}
	r, err := s.Quotas().Report(t.Context(), sb.Workspace)
	if err != nil || r.Used.ArchiveBytes > size+size/2 {
		t.Errorf("use %d, %v", r.Used.ArchiveBytes, err)
	}
}

// TestStateThatIsArchivedAgainNeedsNoSpace archives a sandbox, fetches its state as a comparison does, and archives it again, with a quota for one state.
func TestStateThatIsArchivedAgainNeedsNoSpace(t *testing.T) {
	e := archiving(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	s.pause("s")
	if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: s.get("s").SavedBytes * 3 / 2}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
			t.Fatal(err)
		}
		b, _, err := s.Find(t.Context(), s.caller, "s")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Archives().Ready(t.Context(), b); err != nil || !s.get("s").ArchivedAt.IsZero() {
			t.Fatalf("Ready = %v", err)
		}
	}
}

// TestInterruptedRemovalOfLocalFiles archives a sandbox beside the remains of an earlier removal of the same state.
func TestInterruptedRemovalOfLocalFiles(t *testing.T) {
	e := archiving(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.pause("s")
	sb := s.get("s")
	remains := filepath.Join(e.cfg.CheckpointDir, string(sb.ID), archive.NewPrefix+string(sb.Saved), "layer")
	if err := os.MkdirAll(remains, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
		t.Fatal(err)
	}
	if left := e.saved(string(sb.ID)); len(left) != 0 {
		t.Errorf("on the disk: %v", left)
	}
}

// TestForkFetchesAStateThatIsMissing forks a sandbox whose row, as of a database that was put back, does not say that it is archived.
func TestForkFetchesAStateThatIsMissing(t *testing.T) {
	e := archiving(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "kept")
	s.pause("s")
	if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
		t.Fatal(err)
	}
	b, sb, err := s.Find(t.Context(), s.caller, "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Archives().Ready(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(e.cfg.CheckpointDir, string(sb.ID), string(sb.Saved))); err != nil {
		t.Fatal(err)
	}
	children, err := s.Fork(t.Context(), s.caller, "s", lifecycle.ForkRequest{Count: 1})
	if err != nil || children[0].Err != nil {
		t.Fatalf("fork = %+v, %v", children, err)
	}
	if got := s.readFile(children[0].Sandbox.Name, "/a"); got != "kept" {
		t.Errorf("file %q, want kept", got)
	}
}

// TestEventsOfArchivedSandboxes looks at all that the owner learns: it does not have the number of sent bytes, which tells which data of
// others the bucket has.
func TestEventsOfArchivedSandboxes(t *testing.T) {
	e := archiving(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.pause("s")
	if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(t.Context(), s.caller, "s", sandbox.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[sandbox.EventType]string{}
	for _, ev := range events.Items {
		if ev.Type == sandbox.EventArchived || ev.Type == sandbox.EventFetched {
			got[ev.Type] = fmt.Sprint(slices.Sorted(maps.Keys(ev.Data)), " ", ev.Message)
		}
	}
	want := map[sandbox.EventType]string{
		sandbox.EventArchived: "[size_bytes took_ms] its saved state was moved to the object store: asked for by " + string(s.caller.User),
		sandbox.EventFetched:  "[size_bytes took_ms] its saved state was fetched from the object store",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestServerThatIsKilledBeforeAFetchIsRecorded kills the server when the state is on the disk and its row still says that it is archived.
func TestServerThatIsKilledBeforeAFetchIsRecorded(t *testing.T) {
	e := archiving(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "kept")
	s.pause("s")
	if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
		t.Fatal(err)
	}
	sb := s.get("s")
	s.store.faults.on(func(_ int, call string) error {
		if call == "archives.Fetched" {
			s.store.faults.die()
		}
		return nil
	}, nil)
	if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); !errors.Is(err, errDead) {
		t.Fatalf("resume = %v, want the end of the server", err)
	}
	if got := e.saved(string(sb.ID)); !slices.Equal(got, []string{string(sb.Saved)}) {
		t.Fatalf("on the disk: %v, want the state", got)
	}
	s.kill()
	s = e.start()
	if sb := s.get("s"); sb.ArchivedAt.IsZero() {
		t.Errorf("the row says that the state was fetched: %+v", sb)
	}
	// The sweep of the server may remove the files before, or after.
	if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := s.readFile("s", "/a"); got != "kept" {
		t.Errorf("file %q, want kept", got)
	}
	if got := e.saved(string(sb.ID)); len(got) != 0 {
		t.Errorf("on the disk of a running sandbox: %v", got)
	}
}

// TestSentBytesAreBounded archives a sandbox with new data again and again: what it removes itself stays in the bucket until a collection.
func TestSentBytesAreBounded(t *testing.T) {
	e := archiving(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	again := func() error {
		data := make([]byte, 100<<10)
		_, _ = rand.Read(data) // never fails
		s.write("s", "/a", string(data))
		s.pause("s")
		_, err := s.Archives().Archive(t.Context(), s.caller, "s")
		if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
			t.Fatal(err)
		}
		return err
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
	r, err := s.Quotas().Report(t.Context(), sb.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	size := r.Used.ArchiveBytes
	if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: 2 * size}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for n < 20 && err == nil {
		err = again()
		n++
	}
	var full *sandbox.Error
	if !errors.As(err, &full) || full.Code != sandbox.QuotaExceeded || full.RetryAfter == 0 {
		t.Fatalf("archive %d = %v, want quota_exceeded with a time", n, err)
	}
	s.stop()
	s = e.start()
	if err := again(); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("archive after another start of the server = %v, want quota_exceeded", err)
	}
	if !s.Archives().Collect(t.Context()) {
		t.Error("unused data was not removed")
	}
	if err := again(); err != nil {
		t.Errorf("archive after a collection = %v", err)
	}
}

// TestStatesOfOtherInstallationsStay sweeps a released state in the server that stored it, and in a server that was restored beside it.
func TestStatesOfOtherInstallationsStay(t *testing.T) {
	for installation, want := range map[string]int{"restored": 1, "i": 0} {
		t.Run(installation, func(t *testing.T) {
			e := archiving(t)
			s := e.start()
			sb := s.run(lifecycle.CreateRequest{Name: "s"})
			s.pause("s")
			if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
				t.Fatal(err)
			}
			s.stop()
			e.cfg.Archive.Installation, e.cfg.Archive.Grace = installation, time.Nanosecond
			s = e.start()
			s.Archives().Sweep(t.Context())
			stored := func() int {
				found, err := filepath.Glob(filepath.Join(e.cfg.Archive.URL[len("file://"):], archive.Prefix+"*"))
				if err != nil {
					t.Fatal(err)
				}
				return len(found)
			}
			eventually(t, "the record is removed", func() bool { // the server sweeps at its start, too
				r, err := s.Quotas().Report(t.Context(), sb.Workspace)
				return err == nil && r.Used.ArchiveBytes == 0
			})
			eventually(t, "the sweeps end", func() bool { return stored() == want })
			s.stop()
			if got := stored(); got != want {
				t.Errorf("%d states in the bucket after the sweeps, want %d", got, want)
			}
		})
	}
}

// TestLastDataIsRemoved ends the only archived sandbox: its data does not stay when there are no records. The end of the server between the removals of
// the record and of the description changes nothing.
func TestLastDataIsRemoved(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			e := archiving(t)
			e.cfg.Archive.Grace = time.Nanosecond
			s := e.start()
			bucket := e.cfg.Archive.URL[len("file://"):]
			s.Archives().Sweep(t.Context())
			if !s.Archives().Collect(t.Context()) {
				t.Error("a collection without a bucket failed")
			}
			if _, err := os.Lstat(bucket); !os.IsNotExist(err) {
				t.Errorf("the bucket of a server that has archived nothing: %v", err)
			}
			s.run(lifecycle.CreateRequest{Name: "s"})
			s.pause("s")
			if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
				t.Fatal(err)
			}
			saved := s.get("s").Saved
			s.destroy("s")
			if killed {
				if found, err := s.store.store.Sandboxes.Archives().Forget(t.Context(), saved); err != nil || !found {
					t.Fatal(found, err)
				}
			}
			left := func() (names []string) {
				if err := filepath.WalkDir(bucket, func(name string, d os.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return err
					}
					if rel, _ := filepath.Rel(bucket, name); strings.HasPrefix(rel, "blobs/") || strings.HasPrefix(rel, archive.Prefix) {
						names = append(names, rel)
					}
					old := time.Now().Add(-48 * time.Hour)
					return os.Chtimes(name, old, old)
				}); err != nil {
					t.Fatal(err)
				}
				return names
			}
			if len(left()) < 2 { // and makes them old
				t.Fatal("the bucket has no data")
			}
			if !s.Archives().Collect(t.Context()) { // clears the sent bytes
				t.Error("unused data was not removed")
			}
			s.Archives().Sweep(t.Context())
			if !s.Archives().Collect(t.Context()) {
				t.Error("unused data was not removed")
			}
			if names := left(); len(names) > 0 {
				t.Errorf("the bucket still has %v", names)
			}
		})
	}
}

// TestUnreadableDescriptionsHoldUpNothing makes the description of a released state unreadable: later states are archived within the quota. A
// damaged description is removed, so that unused data can be; a description of another version stays.
func TestUnreadableDescriptionsHoldUpNothing(t *testing.T) {
	for what, content := range map[string]string{"damaged": "{", "foreign": `{"format":99}`} {
		t.Run(what, func(t *testing.T) {
			e := archiving(t)
			s := e.start()
			sb := s.run(lifecycle.CreateRequest{Name: "s"})
			again := func() string { // returns the key of the description
				t.Helper()
				s.pause("s")
				if _, err := s.Archives().Archive(t.Context(), s.caller, "s"); err != nil {
					t.Fatal(err)
				}
				saved := s.get("s").Saved
				if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil {
					t.Fatal(err)
				}
				return archive.Prefix + string(saved)
			}
			first, second := again(), again()
			r, err := s.Quotas().Report(t.Context(), sb.Workspace)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: r.Used.ArchiveBytes}); err != nil {
				t.Fatal(err)
			}
			objects, err := object.Open(t.Context(), e.cfg.Archive.URL, object.Options{Archives: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = objects.Close() }() // it was used as the test needs
			if err := objects.Put(t.Context(), first, []byte(content)); err != nil {
				t.Fatal(err)
			}
			again()
			var left []string
			for _, key := range []string{first, second} {
				if _, err := objects.Get(t.Context(), key); sandbox.CodeOf(err) != sandbox.NotFound {
					left = append(left, key)
				}
			}
			if removed := len(left) == 0; removed != (what == "damaged") {
				t.Errorf("%v of %s and %s are left", left, first, second)
			}
			if err := archive.Reach(t.Context(), objects, map[object.Name]bool{}); (err == nil) != (what == "damaged") {
				t.Errorf("a removal of unused data finds %v", err)
			}
		})
	}
}
