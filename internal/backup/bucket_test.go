package backup

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/sandbox"
)

// bucket opens the backups in a bucket.
func bucket(t *testing.T, url, keyFile string) *Bucket {
	t.Helper()
	b, err := OpenBucket(t.Context(), url, keyFile, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// state makes a state directory.
func state(t *testing.T) Source {
	dir := t.TempDir()
	fill(t, dir, kept, left)
	return Source{StateDir: dir, KeyFile: filepath.Join(dir, "secret.key"), Store: fakeStore{}, Digests: fakeStore{}, Version: "v1"}
}

// wantRestored compares what a backup in a bucket restores.
func wantRestored(t *testing.T, b *Bucket, id string, want map[string]string) {
	t.Helper()
	dir := t.TempDir()
	if _, aside, err := b.Restore(t.Context(), id, dir, RestoreOptions{}); err != nil || aside != "" {
		t.Fatalf("Restore(%q) = %q, %v", id, aside, err)
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("restored from %q (-want +got):\n%s", id, diff)
	}
}

func testBackupsShareData(t *testing.T, url, keyFile string) {
	b, src := bucket(t, url, keyFile), state(t)
	first, sent, err := b.Write(t.Context(), src, Options{})
	if err != nil || sent.Sent == 0 || sent.Sent != sent.Blobs {
		t.Fatalf("Write = %+v, %v", sent, err)
	}
	fill(t, src.StateDir, map[string]string{"streams/f/stdout": "more"})
	second, sent, err := b.Write(t.Context(), src, Options{})
	if err != nil || sent.Sent != 1 || sent.Blobs != len(restored())+1 {
		t.Fatalf("the second Write = %+v, %v, want one blob sent", sent, err)
	}
	without, _, err := b.Write(t.Context(), src, Options{WithoutCheckpoints: true})
	if err != nil {
		t.Fatal(err)
	}
	if work, err := filepath.Glob(filepath.Join(src.StateDir, workPrefix+"*")); err != nil || len(work) > 0 {
		t.Errorf("left in the state directory: %v, %v", work, err)
	}
	more := restored()
	more["streams/f/stdout"] = "more"
	wantRestored(t, b, first.ID, restored())
	wantRestored(t, b, second.ID, more)
	var list []Stored
	err = b.List(t.Context(), func(s *Stored) error {
		list = append(list, *s)
		return nil
	})
	if err != nil || len(list) != 3 {
		t.Fatalf("List = %d backups, %v", len(list), err)
	}
	if list[0].CreatedAt.After(list[2].CreatedAt) || without.Checkpoints || !second.Checkpoints || second.Version != "v1" || second.Machine == "" {
		t.Errorf("List = %+v", list)
	}
	if last, err := b.Last(t.Context()); err != nil || time.Since(last) > time.Hour {
		t.Errorf("Last = %v, %v", last, err)
	}
	if n, damage, err := b.Verify(t.Context(), ""); err != nil || n != 3 || len(damage) > 0 {
		t.Errorf("Verify = %d, %v, %v", n, damage, err)
	}
}

func TestBackupsInABucketShareData(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testBackupsShareData(t, "file://"+t.TempDir(), "") })
	t.Run("encrypted", func(t *testing.T) { testBackupsShareData(t, "file://"+t.TempDir(), keyOfTest(t)) })
}

func TestS3BackupsShareData(t *testing.T) {
	server := objecttest.Start(t)
	t.Run("plain", func(t *testing.T) { testBackupsShareData(t, server.URL("plain"), "") })
	t.Run("encrypted", func(t *testing.T) { testBackupsShareData(t, server.URL("deep/encrypted"), keyOfTest(t)) })
}

// keyOfTest makes a key file.
func keyOfTest(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEncryptedBackupsShowNothing(t *testing.T) {
	dir := t.TempDir()
	b := bucket(t, "file://"+dir, keyOfTest(t))
	src := state(t)
	if _, _, err := b.Write(t.Context(), src, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range tree(t, dir) {
		for _, secret := range []string{"memory", "keys", "host key", "streams", "pages.img"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
}

// damage truncates the object with the largest file of kept, and returns its name.
func damage(t *testing.T, dir string, s *Stored) string {
	t.Helper()
	for _, f := range s.Files {
		if f.Name == "checkpoints/s/c/pages.img" {
			name := f.Blobs[0].String()
			if err := os.Truncate(filepath.Join(dir, "blobs", name[:2], name), 20); err != nil {
				t.Fatal(err)
			}
			return name
		}
	}
	t.Fatal("no such file")
	return ""
}

func TestDamageInABucketChangesNothing(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	whole, _, err := b.Write(t.Context(), src, Options{WithoutCheckpoints: true})
	if err != nil {
		t.Fatal(err)
	}
	name := damage(t, dir, &s)
	present := map[string]string{"modbox.db": "old"}
	to := t.TempDir()
	fill(t, to, present)
	_, _, err = b.Restore(t.Context(), s.ID, to, RestoreOptions{Force: true})
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "checkpoints/s/c/pages.img") {
		t.Errorf("Restore = %v, want code invalid, the object and the file", err)
	}
	if diff := cmp.Diff(present, tree(t, to)); diff != "" {
		t.Errorf("the state directory (-want +got):\n%s", diff)
	}
	_, found, err := b.Verify(t.Context(), "")
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Err.Error(), name) || !cmp.Equal(found[0].Backups, []string{s.ID}) {
		t.Errorf("Verify = %+v, %v", found, err)
	}
	if _, found, err := b.Verify(t.Context(), whole.ID); err != nil || len(found) > 0 {
		t.Errorf("Verify of another backup = %+v, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "backups", s.ID), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, found, err = b.Verify(t.Context(), "")
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Err.Error(), "backups/"+s.ID) {
		t.Errorf("Verify with a damaged description = %+v, %v", found, err)
	}
	before := tree(t, dir)
	if _, err := b.Prune(t.Context(), 2, 0); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "backups/"+s.ID) {
		t.Errorf("Prune = %v, want code invalid and the object", err)
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("after Prune (-want +got):\n%s", diff)
	}
}

func TestBackupsThatAreNotThere(t *testing.T) {
	b := bucket(t, "file://"+t.TempDir(), "")
	for id, want := range map[string]sandbox.Code{"": sandbox.NotFound, "20261126T120000.000Z-0123abcd": sandbox.NotFound, "../store.json": sandbox.Invalid, "x": sandbox.Invalid} {
		if _, _, err := b.Restore(t.Context(), id, t.TempDir(), RestoreOptions{}); sandbox.CodeOf(err) != want {
			t.Errorf("Restore(%q) = %v, want code %s", id, err, want)
		}
	}
	if _, _, err := b.Verify(t.Context(), "x"); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Verify of a bad id = %v, want code invalid", err)
	}
}

func TestHostileBackupInABucket(t *testing.T) {
	dir := t.TempDir()
	b := bucket(t, "file://"+dir, "")
	s, _, err := b.Write(t.Context(), state(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../outside", "/etc/passwd", "bin/program", "token/../../x"} {
		evil := s
		evil.Files = []StoredFile{{Name: name}}
		to := t.TempDir()
		if _, err := b.download(t.Context(), &evil, to, RestoreOptions{}); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("a file %q: %v, want code invalid", name, err)
		}
		if got := tree(t, to); len(got) > 0 {
			t.Errorf("a file %q: written %v", name, got)
		}
	}
}

// older makes the objects in a bucket older than the grace period.
func older(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		at := time.Now().Add(-2 * Grace)
		return os.Chtimes(name, at, at)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPruneKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	var last Stored
	for i := range 3 {
		fill(t, src.StateDir, map[string]string{"streams/e/stdout": strings.Repeat("output ", i+1)})
		s, _, err := b.Write(t.Context(), src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		// Their times are in the ids.
		id := time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC).Format(bucketStamp) + "-00000000"
		if err := b.objects.Delete(t.Context(), bucketPrefix+s.ID); err != nil {
			t.Fatal(err)
		}
		s.ID = id
		put(t, b, &s)
		last = s
	}
	if p, err := b.Prune(t.Context(), 1, Grace); err != nil || len(p.Backups) != 2 || p.Removed != 0 || p.Young != 2 {
		t.Errorf("Prune = %+v, %v, want two backups and no data removed", p, err)
	}
	older(t, dir)
	if p, err := b.Prune(t.Context(), 1, Grace); err != nil || len(p.Backups) != 0 || p.Removed != 2 {
		t.Errorf("Prune after the grace period = %+v, %v, want two objects removed", p, err)
	}
	want := restored()
	want["streams/e/stdout"] = "output output output "
	wantRestored(t, b, "", want)
	if ids, err := b.IDs(t.Context()); err != nil || !cmp.Equal(ids, []string{last.ID}) {
		t.Errorf("IDs = %v, %v", ids, err)
	}
}

// put stores a description.
func put(t *testing.T, b *Bucket, s *Stored) {
	t.Helper()
	if err := b.put(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// slowStore lets something happen while the database is copied.
type slowStore struct {
	fakeStore
	meanwhile func()
}

func (s slowStore) CopyTo(ctx context.Context, path string) error {
	s.meanwhile()
	return s.fakeStore.CopyTo(ctx, path)
}

// TestPruneDuringABackup lets a backup use data that only a backup has which is removed meanwhile.
func TestPruneDuringABackup(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.objects.Delete(t.Context(), bucketPrefix+s.ID); err != nil {
		t.Fatal(err)
	}
	older(t, dir)
	src.Store = slowStore{meanwhile: func() {
		if p, err := b.Prune(t.Context(), 1, Grace); sandbox.CodeOf(err) != sandbox.Unavailable || p.Removed > 0 {
			t.Errorf("Prune = %+v, %v, want code unavailable", p, err)
		}
	}}
	if _, sent, err := b.Write(t.Context(), src, Options{}); err != nil || sent.Sent > 0 {
		t.Errorf("Write = %+v, %v, want nothing sent", sent, err)
	}
	wantRestored(t, b, "", restored())
}

func TestBackupsAtTheSameTime(t *testing.T) {
	b, src := bucket(t, "file://"+t.TempDir(), ""), state(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			s, _, err := b.Write(t.Context(), src, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			wantRestored(t, b, s.ID, restored())
		})
	}
	group.Wait()
	if ids, err := b.IDs(t.Context()); err != nil || len(ids) != 3 {
		t.Errorf("IDs = %v, %v", ids, err)
	}
}

func TestBackupIntoABucketThatFails(t *testing.T) {
	b, src := bucket(t, "file://"+t.TempDir(), ""), state(t)
	good, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	src.Store = fakeStore{err: broken}
	if _, _, err := b.Write(t.Context(), src, Options{}); !errors.Is(err, broken) {
		t.Errorf("Write of a database that cannot be copied = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	src.Store = slowStore{meanwhile: cancel}
	if _, _, err := b.Write(ctx, src, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Write after its context ended = %v", err)
	}
	if ids, err := b.IDs(t.Context()); err != nil || !cmp.Equal(ids, []string{good.ID}) {
		t.Errorf("IDs = %v, %v", ids, err)
	}
	if work, err := filepath.Glob(filepath.Join(src.StateDir, workPrefix+"*")); err != nil || len(work) > 0 {
		t.Errorf("left in the state directory: %v, %v", work, err)
	}
	wantRestored(t, b, "", restored())
}

// TestScheduleInABucket makes backups of the settings' interval in a bucket, and prunes it.
func TestScheduleInABucket(t *testing.T) {
	url, src := "file://"+t.TempDir(), state(t)
	made := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s := Schedule{Every: time.Hour, Log: slog.New(slog.DiscardHandler), Made: func(at time.Time) { made <- at }, Target: Remote{
		Name: url, Keep: 1, Log: slog.New(slog.DiscardHandler),
		Open: func(ctx context.Context) (*Bucket, error) { return OpenBucket(ctx, url, "", true) },
		Write: func(ctx context.Context, b *Bucket) (Stored, error) {
			s, _, err := b.Write(ctx, src, Options{})
			return s, err
		},
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	if at := <-made; time.Since(at) > time.Hour {
		t.Errorf("the newest backup was made at %v", at)
	}
	cancel()
	<-done
	b := bucket(t, url, "")
	wantRestored(t, b, "", restored())
	first, err := b.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	first.ID = "20200101T000000.000Z-00000000"
	put(t, b, &first)
	if last, err := b.Last(t.Context()); err != nil || time.Since(last) > time.Hour {
		t.Errorf("Last = %v, %v", last, err)
	}
	first.ID = "29990101T000000.000Z-00000000" // of a clock that was wrong
	put(t, b, &first)
	if last, err := b.Last(t.Context()); err != nil || last.After(time.Now()) {
		t.Errorf("Last = %v, %v, want a time in the past", last, err)
	}
	if err := b.objects.Delete(t.Context(), bucketPrefix+first.ID); err != nil {
		t.Fatal(err)
	}
	if id, err := s.Target.Make(t.Context()); err != nil || id == "" {
		t.Errorf("Make = %q, %v", id, err)
	}
	if ids, err := b.IDs(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("IDs = %v, %v, want one", ids, err)
	}
}

// TestPruneOfABucketThatCannotBeRead removes nothing when the backups cannot be listed.
func TestPruneOfABucketThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	b := bucket(t, "file://"+dir, "")
	s, _, err := b.Write(t.Context(), state(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	backups, aside := filepath.Join(dir, "backups"), filepath.Join(dir, "aside")
	if err := errors.Join(os.Rename(backups, aside), os.WriteFile(backups, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	older(t, dir)
	if p, err := b.Prune(t.Context(), 1, 0); err == nil || p.Removed > 0 {
		t.Errorf("Prune = %+v, %v, want an error", p, err)
	}
	if err := errors.Join(os.Remove(backups), os.Rename(aside, backups)); err != nil {
		t.Fatal(err)
	}
	wantRestored(t, b, s.ID, restored())
}

func TestBackupWithoutADatabaseIsRefused(t *testing.T) {
	b := bucket(t, "file://"+t.TempDir(), "")
	s, _, err := b.Write(t.Context(), state(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Files = nil
	put(t, b, &s)
	to, present := t.TempDir(), map[string]string{"modbox.db": "old"}
	fill(t, to, present)
	if _, _, err := b.Restore(t.Context(), s.ID, to, RestoreOptions{Force: true}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Restore = %v, want code invalid", err)
	}
	if diff := cmp.Diff(present, tree(t, to)); diff != "" {
		t.Errorf("the state directory (-want +got):\n%s", diff)
	}
}
