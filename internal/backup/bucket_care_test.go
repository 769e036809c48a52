package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestDescriptionsAreReadOneAtATime: a description is garbage when the next is read.
func TestDescriptionsAreReadOneAtATime(t *testing.T) {
	b, src := bucket(t, "file://"+t.TempDir(), ""), state(t)
	const backups = 5
	for range backups {
		if _, _, err := b.Write(t.Context(), src, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	var before []weak.Pointer[StoredFile]
	err := b.List(t.Context(), func(s *Stored) error {
		runtime.GC()
		for i, p := range before {
			if p.Value() != nil {
				t.Errorf("at backup %d, backup %d is in memory", len(before), i)
			}
		}
		before = append(before, weak.Make(&s.Files[0]))
		return nil
	})
	if err != nil || len(before) != backups {
		t.Errorf("List of %d backups = %v", len(before), err)
	}
	if n, damage, err := b.Verify(t.Context(), ""); err != nil || n != backups || len(damage) > 0 {
		t.Errorf("Verify = %d, %v, %v", n, damage, err)
	}
}

// TestVerifyHoldsNamesAlone: of the backups that were verified, the name of each blob is in memory once, and no description. A blob that
// many backups have is read once.
func TestVerifyHoldsNamesAlone(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	const backups, files = 5, 50
	more := map[string]string{}
	for i := range files {
		more[fmt.Sprintf("streams/f/%d", i)] = fmt.Sprintf("output %d", i)
	}
	fill(t, src.StateDir, more)
	for range backups {
		if _, _, err := b.Write(t.Context(), src, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := b.IDs(t.Context())
	if err != nil || len(ids) != backups {
		t.Fatalf("IDs = %v, %v", ids, err)
	}
	v := verification{map[object.Name]bool{}, map[object.Name]*Damage{}}
	var descriptions []weak.Pointer[StoredFile]
	distinct := map[object.Name]bool{}
	verify := func(id string) {
		t.Helper()
		s, err := b.Get(t.Context(), id)
		if err == nil {
			err = v.backup(t.Context(), b.objects, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Files {
			for _, n := range f.Blobs {
				distinct[n] = true
			}
		}
		descriptions = append(descriptions, weak.Make(&s.Files[0]))
	}
	verify(ids[0])
	shared := len(v.read)
	if shared <= files {
		t.Errorf("%d blobs were read of a backup with %d files and more", shared, files)
	}
	if err := os.RemoveAll(filepath.Join(dir, "blobs")); err != nil { // each later read finds nothing
		t.Fatal(err)
	}
	for _, id := range ids[1:] {
		verify(id)
	}
	if len(v.read) != len(distinct) || len(v.damaged) != len(distinct)-shared {
		t.Errorf("in memory are %d names and %d damages; of %d blobs, %d are only in later backups", len(v.read), len(v.damaged), len(distinct), len(distinct)-shared)
	}
	runtime.GC()
	for i, p := range descriptions {
		if p.Value() != nil {
			t.Errorf("the description of backup %d is in memory", i)
		}
	}
	runtime.KeepAlive(v)
}

func TestListWithADamagedDescription(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	var ids []string
	for range 3 {
		s, _, err := b.Write(t.Context(), src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	if err := os.WriteFile(filepath.Join(dir, "backups", ids[1]), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := b.List(t.Context(), func(s *Stored) error {
		got = append(got, s.ID)
		return nil
	})
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), ids[1]) || !cmp.Equal(got, []string{ids[0], ids[2]}) {
		t.Errorf("List = %v, %v, want the other two, and code invalid", got, err)
	}
}

// space returns options of a restore onto a disk with so much space.
func space(bytes, inodes int64) RestoreOptions {
	return RestoreOptions{free: func(string) (ballast.Space, error) { return ballast.Space{Bytes: bytes, Inodes: inodes}, nil }}
}

// TestRestoreNeedsSpace restores a backup, which needs 20 blocks, onto disks of several sizes.
func TestRestoreNeedsSpace(t *testing.T) {
	src := state(t)
	holes := filepath.Join(src.StateDir, "checkpoints/s/c/holes.img")
	fill(t, src.StateDir, map[string]string{"checkpoints/s/c/holes.img": "x"})
	if err := os.Truncate(holes, 3*object.ChunkBytes+1); err != nil { // the first chunk has a byte, and the last is a byte
		t.Fatal(err)
	}
	b := bucket(t, "file://"+t.TempDir(), "")
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.tar.zst")
	if _, err := Write(t.Context(), src, file, Options{}); err != nil {
		t.Fatal(err)
	}
	files := int64(len(restored()) + 1)
	blocks := (int64(len(kept["checkpoints/s/c/pages.img"])) + blockBytes - 1) / blockBytes
	small := (files - 2 + blocks) * blockBytes // without holes.img
	for name, tt := range map[string]struct {
		restore func(dir string, o RestoreOptions) error
		bytes   int64
	}{
		"bucket": {func(dir string, o RestoreOptions) error {
			_, _, err := b.Restore(t.Context(), s.ID, dir, o)
			return err
		}, small + object.ChunkBytes + blockBytes + spareBytes},
		"file": {func(dir string, o RestoreOptions) error {
			_, _, err := Restore(t.Context(), file, dir, o)
			return err
		}, small + 3*object.ChunkBytes + blockBytes + spareBytes},
	} {
		t.Run(name, func(t *testing.T) {
			dir, present := t.TempDir(), map[string]string{"modbox.db": "old"}
			fill(t, dir, present)
			for _, o := range []RestoreOptions{space(tt.bytes-1, files), space(tt.bytes, files-1), space(0, files)} {
				o.Force = true
				have, _ := o.free("")
				err := tt.restore(dir, o)
				if sandbox.CodeOf(err) != sandbox.DiskFull {
					t.Errorf("Restore onto a disk of %+v = %v, want code disk_full", have, err)
				} else if have.Inodes == files && !strings.Contains(err.Error(), show(tt.bytes)) || have.Inodes < files && !strings.Contains(err.Error(), "inodes") {
					t.Errorf("Restore onto a disk of %+v = %v, want what it needs", have, err)
				}
				if diff := cmp.Diff(present, tree(t, dir)); diff != "" {
					t.Errorf("the state directory (-want +got):\n%s", diff)
				}
			}
			if err := tt.restore(t.TempDir(), space(tt.bytes, files)); err != nil {
				t.Errorf("Restore onto a disk with just enough space = %v", err)
			}
		})
	}
}

// TestFilesThatDoNotFitAreRemoved: the disk is not full while the rest of a backup is read.
func TestFilesThatDoNotFitAreRemoved(t *testing.T) {
	dir := t.TempDir()
	have := ballast.Space{Bytes: spareBytes + 2*blockBytes, Inodes: 10}
	var n need
	for i, want := range []string{dir, dir, "", ""} {
		got, err := n.place(100, have, dir)
		if err != nil || got != want {
			t.Errorf("file %d: place = %q, %v, want %q", i, got, err, want)
		}
		if got != "" {
			fill(t, got, map[string]string{Name(time.Unix(int64(i), 0)): "x"})
		} else if left := tree(t, dir); len(left) > 0 {
			t.Errorf("file %d: left %v", i, left)
		}
	}
	if n.bytes != 4*blockBytes || n.files != 4 {
		t.Errorf("%+v are needed, want four blocks", n)
	}
}

// TestReadingOfABucketThatCannotBeWritten has a file in the place of the leases.
func TestReadingOfABucketThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	if _, _, err := b.Write(t.Context(), src, Options{}); err != nil {
		t.Fatal(err)
	}
	leases := filepath.Join(dir, "leases")
	if err := errors.Join(os.RemoveAll(leases), os.WriteFile(leases, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	b.Warn = func(text string) { warnings = append(warnings, text) }
	wantRestored(t, b, "", restored())
	if n, damage, err := b.Verify(t.Context(), ""); err != nil || n != 1 || len(damage) > 0 {
		t.Errorf("Verify = %d, %v, %v", n, damage, err)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "cannot be written") {
		t.Errorf("warnings: %v", warnings)
	}
}

// TestLeasesOfTheFutureDoNotCount: a process with a wrong clock was killed.
func TestLeasesOfTheFutureDoNotCount(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	if _, _, err := b.Write(t.Context(), src, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"leases/hold-1", "leases/collect-1"} {
		fill(t, dir, map[string]string{name: "{}"})
		at := time.Now().Add(365 * 24 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	wantRestored(t, b, "", restored())
	if _, err := b.Prune(t.Context(), 1, Grace); err != nil {
		t.Errorf("Prune = %v", err)
	}
	if leases, err := filepath.Glob(filepath.Join(dir, "leases/*")); err != nil || len(leases) > 0 {
		t.Errorf("left: %v, %v", leases, err)
	}
}

// TestLastIsNotZeroBecauseOfAClock: else the schedule makes backups without a pause.
func TestLastIsNotZeroBecauseOfAClock(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.objects.Delete(t.Context(), bucketPrefix+s.ID); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	for _, tt := range []struct{ named, written, want time.Duration }{
		{30 * time.Minute, 0, 0},                         // within the skew: it was made now
		{50 * 24 * time.Hour, -time.Hour, -time.Hour},    // the bucket knows when it was made
		{-2 * time.Hour, -5 * time.Hour, -2 * time.Hour}, // the clock of this machine is ahead of the bucket's
	} {
		s.ID = now.Add(tt.named).Format(bucketStamp) + "-00000000"
		put(t, b, &s)
		object := filepath.Join(dir, bucketPrefix, s.ID)
		if err := os.Chtimes(object, now, now.Add(tt.written)); err != nil {
			t.Fatal(err)
		}
		last, err := b.Last(t.Context())
		if off := last.Sub(now.Add(tt.want)); err != nil || off < -time.Minute || off > time.Minute {
			t.Errorf("named %v and written %v: Last = %v, %v, want %v", tt.named, tt.written, last, err, now.Add(tt.want))
		}
		if err := os.Remove(object); err != nil {
			t.Fatal(err)
		}
	}
	files := t.TempDir()
	fill(t, files, map[string]string{Name(now.Add(30 * time.Minute)): ""})
	if last, err := Last(files); err != nil || last.IsZero() || last.After(time.Now()) {
		t.Errorf("Last of a directory = %v, %v, want now", last, err)
	}
}

// TestRestoreThatKeepsImagesNeedsNone restores from a bucket without the images, and from a file.
func TestRestoreThatKeepsImagesNeedsNone(t *testing.T) {
	src, dir := state(t), t.TempDir()
	fill(t, src.StateDir, map[string]string{"images/index.json": `{"version":3}`, "images/images/a.erofs": strings.Repeat("image", 1e5)})
	b := bucket(t, "file://"+dir, "")
	s, _, err := b.Write(t.Context(), src, Options{Images: ImagesAll})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Files {
		if strings.HasPrefix(f.Name, images+"/") {
			name := f.Blobs[0].String()
			if err := os.Remove(filepath.Join(dir, "blobs", name[:2], name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "b.tar.zst")
	if _, err := Write(t.Context(), src, file, Options{Images: ImagesAll}); err != nil {
		t.Fatal(err)
	}
	want := restored()
	want["images/index.json"] = "ours"
	o := space(1<<40, int64(len(restored()))) // no image needs an inode
	o.KeepImages = true
	for name, restore := range map[string]func(to string) error{
		"bucket": func(to string) error { _, _, err := b.Restore(t.Context(), s.ID, to, o); return err },
		"file":   func(to string) error { _, _, err := Restore(t.Context(), file, to, o); return err },
	} {
		to := t.TempDir()
		fill(t, to, map[string]string{"images/index.json": "ours"})
		if err := restore(to); err != nil {
			t.Errorf("%s: Restore = %v", name, err)
		}
		if diff := cmp.Diff(want, tree(t, to)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, _, err := b.Restore(t.Context(), s.ID, t.TempDir(), RestoreOptions{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Restore with the images = %v, want code not_found", err)
	}
}

// TestBackupsOfTheFuture: a machine with a wrong clock made backups.
func TestBackupsOfTheFuture(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	var warnings []string
	b.Warn = func(text string) { warnings = append(warnings, text) }
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.objects.Delete(t.Context(), bucketPrefix+s.ID); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	add := func(named, written time.Duration) string {
		t.Helper()
		s.ID = now.Add(named).Format(bucketStamp) + "-00000000"
		put(t, b, &s)
		if err := os.Chtimes(filepath.Join(dir, bucketPrefix, s.ID), now.Add(written), now.Add(written)); err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	const day = 24 * time.Hour
	oldest := add(-9*day, -9*day)
	wrong := add(50*day, -5*day) // by the clock of the bucket it was made between the others
	newest := add(-2*day, -2*day)
	future := add(60*day, 60*day)
	if ids, err := b.IDs(t.Context()); err != nil || !cmp.Equal(ids, []string{oldest, wrong, newest, future}) {
		t.Errorf("IDs = %v, %v", ids, err)
	}
	if got, err := b.Get(t.Context(), ""); err != nil || got.ID != newest {
		t.Errorf("the newest is %v, %v, want %s", got.ID, err, newest)
	}
	if all := strings.Join(warnings, "\n"); len(warnings) != 2 || !strings.Contains(all, wrong) || !strings.Contains(all, future) {
		t.Errorf("warnings:\n%s", all)
	}
	warnings = nil
	if last, err := b.Last(t.Context()); err != nil || last.After(now) || last.Before(now.Add(-3*day)) {
		t.Errorf("Last = %v, %v", last, err)
	}
	if p, err := b.Prune(t.Context(), 2, Grace); err != nil || !cmp.Equal(p.Backups, []string{oldest}) {
		t.Errorf("Prune = %v, %v, want the oldest removed", p.Backups, err)
	}
	if p, err := b.Prune(t.Context(), 1, Grace); err != nil || !cmp.Equal(p.Backups, []string{wrong}) {
		t.Errorf("Prune = %v, %v, want the second removed", p.Backups, err)
	}
	if ids, err := b.IDs(t.Context()); err != nil || !cmp.Equal(ids, []string{newest, future}) || len(warnings) != 4 {
		t.Errorf("IDs = %v, %v, and there are %d warnings", ids, err, len(warnings))
	}
	wantRestored(t, b, future, restored())
	if err := b.objects.Delete(t.Context(), bucketPrefix+newest); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), ""); err != nil || got.ID != future {
		t.Errorf("the only backup is %v, %v, want %s", got.ID, err, future)
	}
}

// TestPruneDuringARestore lets a restore read data that no backup needs any more.
func TestPruneDuringARestore(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	older(t, dir)
	o := RestoreOptions{free: func(to string) (ballast.Space, error) { // before it reads data
		if err := b.objects.Delete(t.Context(), bucketPrefix+s.ID); err != nil {
			t.Fatal(err)
		}
		if p, err := b.Prune(t.Context(), 1, 0); sandbox.CodeOf(err) != sandbox.Unavailable || p.Removed > 0 {
			t.Errorf("Prune = %+v, %v, want code unavailable", p, err)
		}
		return ballast.Free(to)
	}}
	to := t.TempDir()
	if _, _, err := b.Restore(t.Context(), s.ID, to, o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(restored(), tree(t, to)); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	if p, err := b.Prune(t.Context(), 1, 0); err != nil || p.Removed == 0 {
		t.Errorf("Prune after the restore = %+v, %v", p, err)
	}
}

// TestReadingDuringAPrune: data may be missing while it is being removed.
func TestReadingDuringAPrune(t *testing.T) {
	dir := t.TempDir()
	b, src := bucket(t, "file://"+dir, ""), state(t)
	s, _, err := b.Write(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, dir, map[string]string{"leases/collect-1": "{}"})
	if _, _, err := b.Restore(t.Context(), s.ID, t.TempDir(), RestoreOptions{}); sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "leases/collect-1") {
		t.Errorf("Restore = %v, want code unavailable, and the object", err)
	}
	if _, _, err := b.Verify(t.Context(), ""); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Verify = %v, want code unavailable", err)
	}
	if leases, err := filepath.Glob(filepath.Join(dir, "leases/*")); err != nil || len(leases) != 1 {
		t.Errorf("left: %v, %v", leases, err)
	}
}

// lateTarget makes a backup, and fails afterwards.
type lateTarget struct {
	made time.Time
	err  error
}

func (l *lateTarget) Last(context.Context) (time.Time, error) { return l.made, nil }
func (l *lateTarget) String() string                          { return "target" }
func (l *lateTarget) Make(context.Context) (string, error) {
	l.made = time.Now()
	return "backup-1", l.err
}

// TestBackupWithoutPruneIsABackup: the log says what failed, and the next backup is made in time.
func TestBackupWithoutPruneIsABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		target := &lateTarget{err: errors.New("cannot be pruned")}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
		defer cancel()
		(&Schedule{Every: time.Hour, Target: target, Log: slog.New(slog.NewTextHandler(&log, nil))}).Run(ctx)
		text := log.String()
		if n := strings.Count(text, "made a backup"); n != 2 {
			t.Errorf("%d backups were made, want 2", n)
		}
		if strings.Contains(text, "was not made") || strings.Count(text, "cannot be pruned") != 2 || strings.Count(text, "the backup was made, but") != 2 {
			t.Errorf("the log:\n%s", text)
		}
	})
}

// TestFilesOfTheFuture: a machine with a wrong clock made backups in a directory.
func TestFilesOfTheFuture(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	future, newer, older := Name(now.Add(50*24*time.Hour)), Name(now.Add(-time.Hour)), Name(now.Add(-2*time.Hour))
	fill(t, dir, map[string]string{future: "", newer: "", older: ""})
	if last, err := Last(dir); err != nil || last.After(now) || last.Before(now.Add(-time.Hour-time.Second)) {
		t.Errorf("Last = %v, %v, want an hour ago", last, err)
	}
	var log bytes.Buffer
	d := Directory{Path: dir, Keep: 2, Log: slog.New(slog.NewTextHandler(&log, nil)), Write: func(_ context.Context, path string) error { return os.WriteFile(path, nil, 0o600) }}
	made, err := d.Make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, future), made, filepath.Join(dir, newer)}
	if got, err := List(dir); err != nil || !cmp.Equal(got, want) {
		t.Errorf("List = %v, %v, want %v", got, err, want)
	}
	if !strings.Contains(log.String(), future) {
		t.Errorf("the log: %s", log.String())
	}
}
