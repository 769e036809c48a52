package lifecycle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// copying is archiving with copies.
func copying(t *testing.T) *env {
	e := archiving(t)
	e.cfg.Archive.Copies = true
	return e
}

// bucket is the directory of the object store, and lost one in which it is out of reach.
func (e *env) bucket() string { return strings.TrimPrefix(e.cfg.Archive.URL, "file://") }

func (e *env) moveBucket(from, to string) {
	e.t.Helper()
	if err := os.Rename(e.bucket()+from, e.bucket()+to); err != nil {
		e.t.Fatal(err)
	}
}

// loseDisk removes all saved states of a sandbox.
func (e *env) loseDisk(id sandbox.ID) {
	e.t.Helper()
	if err := os.RemoveAll(filepath.Join(e.cfg.CheckpointDir, string(id))); err != nil {
		e.t.Fatal(err)
	}
}

// copied waits until each checkpoint has a copy.
func (s *server) copied() {
	s.t.Helper()
	eventually(s.t, "all checkpoints are copied", func() bool {
		left, err := s.store.store.Sandboxes.Archives().UncopiedCheckpoints(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		return len(left) == 0
	})
}

// name makes a named checkpoint of "a".
func (s *server) name(name string) sandbox.Checkpoint {
	s.t.Helper()
	cp, err := s.Checkpoints().Create(s.t.Context(), s.caller, "a", name)
	if err != nil {
		s.t.Fatal(err)
	}
	return cp
}

// TestCopiedCheckpointOutlivesItsDisk copies a checkpoint by a server that is killed before it has recorded the copy, and by the next. Then it loses the disk. The sandbox
// goes back to the checkpoint, whose files stay.
func TestCopiedCheckpointOutlivesItsDisk(t *testing.T) {
	e := copying(t)
	s := e.prepare()
	sent := make(chan struct{})
	s.store.faults.on(func(_ int, call string) error {
		if call == "archives.CheckpointCopied" {
			s.store.faults.die()
			close(sent)
		}
		return nil
	}, nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb := s.run(lifecycle.CreateRequest{Name: "a"})
	s.write("a", "/a", "kept")
	cp := s.name("c")
	<-sent
	s.kill()
	if found, err := os.ReadDir(filepath.Join(e.bucket(), "archives")); err != nil || len(found) != 1 || found[0].Name() != string(cp.ID) {
		t.Fatalf("descriptions in the bucket: %v, %v", found, err)
	}
	s = e.start()
	s.copied()
	if names := e.saved(string(sb.ID)); len(names) != 1 {
		t.Errorf("saved states %v, want the checkpoint", names)
	}
	s.stop()
	e.loseDisk(sb.ID)
	s = e.start()
	s.write("a", "/a", "later")
	if _, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "c"); err != nil {
		t.Fatal(err)
	}
	if got := s.readFile("a", "/a"); got != "kept" {
		t.Errorf("file %q, want kept", got)
	}
	if names := e.saved(string(sb.ID)); len(names) != 1 {
		t.Errorf("saved states %v, want the checkpoint", names)
	}
	s.Archives().Sweep(t.Context()) // the copy stays
	e.loseDisk(sb.ID)
	if _, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "c"); err != nil {
		t.Errorf("restore again: %v", err)
	}
	s.Sweep()
	e.wantQuarantined()
	if forks, err := os.ReadDir(filepath.Join(e.cfg.CheckpointDir, "forks")); err != nil || len(forks) > 0 {
		t.Errorf("files of uploads: %v, %v", forks, err)
	}
}

// TestCheckpointThatCannotBeFetched goes back to checkpoints whose files are neither on the disk nor, whole, in the bucket. The sandbox runs on, and the checkpoint can be
// restored when the bucket is as it was.
func TestCheckpointThatCannotBeFetched(t *testing.T) {
	e := copying(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "a"})
	s.write("a", "/a", "kept")
	cp := s.name("c")
	s.copied()
	e.loseDisk(sb.ID)
	s.write("a", "/a", "later")
	description := filepath.Join(e.bucket(), "archives", string(cp.ID))
	data, err := os.ReadFile(description)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]struct{ damage, mend func() error }{
		"away": {func() error { return os.Rename(e.bucket(), e.bucket()+".away") }, func() error { return os.Rename(e.bucket()+".away", e.bucket()) }},
		"without blobs": {
			func() error { return os.Rename(filepath.Join(e.bucket(), "blobs"), e.bucket()+".blobs") },
			func() error { return os.Rename(e.bucket()+".blobs", filepath.Join(e.bucket(), "blobs")) },
		},
		"missing": {func() error { return os.Remove(description) }, func() error { return os.WriteFile(description, data, 0o600) }},
		"damaged": {func() error { return os.WriteFile(description, []byte("x"), 0o600) }, func() error { return os.WriteFile(description, data, 0o600) }},
	} {
		if err := change.damage(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "c")
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: restore = %v, want unavailable", what, err)
		}
		if got := s.readFile("a", "/a"); got != "later" || s.get("a").State != sandbox.Running {
			t.Errorf("%s: file %q of a sandbox that is %s", what, got, s.get("a").State)
		}
		if names := e.saved(string(sb.ID)); len(names) != 0 {
			t.Errorf("%s: saved states %v, want none", what, names)
		}
		if list, err := s.Checkpoints().List(t.Context(), s.caller, "a"); err != nil || len(list) != 1 {
			t.Errorf("%s: checkpoints %v, %v", what, list, err)
		}
		if err := change.mend(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "c"); err != nil {
		t.Fatal(err)
	}
	if got := s.readFile("a", "/a"); got != "kept" {
		t.Errorf("file %q, want kept", got)
	}
}

// TestLostSandboxGoesOnFromACopy loses a sandbox and the disk, while the bucket cannot be reached. When it can, the sandbox goes on from its automatic checkpoint, or, if that has no
// copy, from the one before, and from none of what a restore has discarded.
func TestLostSandboxGoesOnFromACopy(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		t.Run(fmt.Sprintf("earlier=%t", earlier), func(t *testing.T) { testLostSandboxGoesOnFromACopy(t, earlier) })
	}
}

func testLostSandboxGoesOnFromACopy(t *testing.T, earlier bool) {
	e := copying(t)
	failed := make(chan struct{}, 1000)
	e.onLog = func(message string) {
		if strings.HasPrefix(message, "automatic checkpoint of a lost sandbox not fetched") {
			failed <- struct{}{}
		}
	}
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "kept")
	s.saveAutomatically()
	s.copied()
	if earlier {
		e.moveBucket("", ".away")
		s.write("a", "/a", "lost")
		s.saveAutomatically()
		e.moveBucket(".away", "")
		s.stop()
		e.cfg.Archive.Copies = false
		s = e.start()
	}
	e.moveBucket("", ".away")
	e.loseDisk(sb.ID)
	e.host.End(sb.ID, lostExit)
	<-failed
	if got := s.get("a"); got.State.Ended() {
		t.Fatalf("the sandbox ended while the bucket was away: %+v", got.Cause)
	}
	e.moveBucket(".away", "")
	eventually(t, "it goes on", func() bool { return slices.Contains(s.eventsOf("a"), sandbox.EventRolledBack) })
	s.reach("a", sandbox.Running)
	if got := s.readFile("a", "/a"); got != "kept" {
		t.Errorf("earlier %t: file %q, want kept", earlier, got)
	}
	if names := e.saved(string(sb.ID)); (len(names) == 0) != earlier {
		t.Errorf("earlier %t: saved states %v", earlier, names)
	}
	s.stop()
}

// TestLostSandboxWithoutACopyEnds loses a sandbox, the disk and, for good, the copy.
func TestLostSandboxWithoutACopyEnds(t *testing.T) {
	e := copying(t)
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "kept")
	s.saveAutomatically()
	s.copied()
	if err := os.RemoveAll(filepath.Join(e.bucket(), "archives")); err != nil {
		t.Fatal(err)
	}
	e.loseDisk(sb.ID)
	e.host.End(sb.ID, lostExit)
	got := s.reach(string(sb.ID), sandbox.Failed)
	if !strings.Contains(got.Cause.Message, "could not go on from its automatic checkpoint") {
		t.Errorf("cause %+v", got.Cause)
	}
}

// TestReplacedDuringItsUpload replaces an automatic checkpoint while it is sent: the upload ends, and the copy counts until the next has one.
func TestReplacedDuringItsUpload(t *testing.T) {
	e := copying(t)
	s := e.prepare()
	var replaced atomic.Bool
	began, goOn := make(chan struct{}), make(chan struct{})
	s.store.faults.on(func(_ int, call string) error {
		if call == "archives.CheckpointCopied" && !replaced.Swap(true) {
			close(began)
			<-goOn
		}
		return nil
	}, nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb := s.keeping()
	s.write("a", "/a", "first")
	s.saveAutomatically()
	<-began
	s.write("a", "/a", "second")
	s.saveAutomatically()
	close(goOn)
	s.copied()
	cp, err := s.store.store.Sandboxes.Archives().AutomaticCopy(t.Context(), sb.ID)
	if err != nil || cp == nil || !cp.CreatedAt.Equal(s.get("a").LastCheckpointAt) {
		t.Errorf("the copy is %+v, %v, want the second checkpoint", cp, err)
	}
	s.Archives().Sweep(t.Context())
	if found, err := os.ReadDir(filepath.Join(e.bucket(), "archives")); err != nil || len(found) != 1 {
		t.Errorf("descriptions in the bucket: %v, %v, want the one of the second checkpoint", found, err)
	}
}

// TestCheckpointsInALoop makes and deletes checkpoints, with a quota for two: the copies of deleted checkpoints make space, and the copies of the others stay.
func TestCheckpointsInALoop(t *testing.T) {
	e := copying(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "a"})
	s.write("a", "/a", "kept")
	first := s.name("first")
	s.copied()
	if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: first.SizeBytes * 5 / 2}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.name("next")
		s.copied()
		if err := s.Checkpoints().Delete(t.Context(), s.caller, "a", "next"); err != nil {
			t.Fatal(err)
		}
	}
	e.loseDisk(sb.ID)
	r, err := s.Quotas().Report(t.Context(), sb.Workspace)
	if err != nil || r.Used.ArchiveBytes > first.SizeBytes*5/2 {
		t.Errorf("use %d, %v", r.Used.ArchiveBytes, err)
	}
	if _, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "first"); err != nil {
		t.Error(err)
	}
}

// TestAutomaticCheckpointsSendHalf lets a workspace send half of its quota: automatic checkpoints wait for a collection, and named checkpoints do not.
func TestAutomaticCheckpointsSendHalf(t *testing.T) {
	e := copying(t)
	s := e.start()
	sb := s.keeping()
	s.write("a", "/a", "kept")
	s.name("first") // which makes the store
	s.copied()
	archives := s.store.store.Sandboxes.Archives()
	if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := archives.AddSent(t.Context(), sb.Workspace, 1<<29); err != nil {
		t.Fatal(err)
	}
	automatic := s.saveAutomatically().LastCheckpointAt
	s.name("c")
	eventually(t, "the named checkpoint is copied, and the automatic one not", func() bool {
		left, err := archives.UncopiedCheckpoints(t.Context())
		return err == nil && len(left) == 1 && left[0].Automatic() && left[0].CreatedAt.Equal(automatic)
	})
	if cp, err := archives.AutomaticCopy(t.Context(), sb.ID); err != nil || cp != nil {
		t.Errorf("automatic copy %v, %v", cp, err)
	}
}

// TestUploadError copies no checkpoint while the bucket refuses objects, and serves the sandbox and its checkpoint.
func TestUploadError(t *testing.T) {
	e := copying(t)
	failed := make(chan struct{}, 1000)
	e.onLog = func(message string) {
		if strings.HasPrefix(message, "state not sent to the object store") {
			failed <- struct{}{}
		}
	}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.write("a", "/a", "kept")
	s.name("first")
	s.copied()
	e.moveBucket("", ".away")
	if err := os.WriteFile(e.bucket(), nil, 0o600); err != nil { // no directory: each write fails
		t.Fatal(err)
	}
	s.name("second")
	<-failed
	if _, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "second"); err != nil {
		t.Error(err)
	}
	if err := os.Remove(e.bucket()); err != nil {
		t.Fatal(err)
	}
	e.moveBucket(".away", "")
}

// TestCopyThatIsNotRecorded deletes a checkpoint, or lowers the quota, between the upload and its record. The bucket keeps no description, which would count for no quota.
func TestCopyThatIsNotRecorded(t *testing.T) {
	for _, deleted := range []bool{true, false} {
		t.Run(fmt.Sprintf("deleted=%t", deleted), func(t *testing.T) {
			e := copying(t)
			s := e.prepare()
			began, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			s.store.faults.on(func(_ int, call string) error {
				if call == "archives.CheckpointCopied" {
					once.Do(func() { close(began) })
					<-goOn
				}
				return nil
			}, nil)
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			sb := s.run(lifecycle.CreateRequest{Name: "a"})
			s.write("a", "/a", "kept")
			cp := s.name("c")
			<-began
			description := filepath.Join(e.bucket(), "archives", string(cp.ID))
			if _, err := os.Stat(description); err != nil {
				t.Fatal(err)
			}
			if deleted {
				if err := s.Checkpoints().Delete(t.Context(), s.caller, "a", "c"); err != nil {
					t.Fatal(err)
				}
			} else if _, err := s.Quotas().Set(t.Context(), sb.Workspace, quota.Limits{quota.LimitArchive: 1}); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			eventually(t, "the description is removed", func() bool {
				_, err := os.Stat(description)
				return errors.Is(err, os.ErrNotExist)
			})
			if list, err := s.Checkpoints().List(t.Context(), s.caller, "a"); err != nil || (len(list) == 0) != deleted {
				t.Errorf("checkpoints %+v, %v", list, err)
			}
		})
	}
}
