package backup

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/sandbox"
)

// fakeStore is a database whose copy is a line of text.
type fakeStore struct {
	digests []string
	err     error
}

func (s fakeStore) CopyTo(_ context.Context, path string) error {
	return errors.Join(s.err, os.WriteFile(path, []byte("rows"), 0o600))
}

func (s fakeStore) DigestsInUse(context.Context) ([]string, error) { return s.digests, nil }

// Files of a state directory: files that belong to a backup, and others.
var (
	kept = map[string]string{
		"secret.key": "keys", "token": "mbx_1", "ssh-host-key": "host key", "agents/a.erofs": "agent", "checkpoints/s/c/pages.img": strings.Repeat("memory", 1e5),
		"checkpoints/s/c/manifest.json": "{}", "streams/e/stdout": "output",
	}
	left = map[string]string{
		"modbox.db": "live", "modbox.db-wal": "live", "lock": "1", "address": "x", "bin/modbox-agent": "program", "layers/l": "disk",
		"checkpoints/s/.new-1/pages.img": "half", "checkpoints/forks/f/pages.img": "fork",
	}
)

// fill writes files into dir.
func fill(t *testing.T, dir string, files ...map[string]string) {
	t.Helper()
	for _, m := range files {
		for name, text := range m {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// tree returns the files in dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// write makes a backup of a filled state directory.
func write(t *testing.T, o Options) string {
	t.Helper()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "b.tar.zst")
	fill(t, dir, kept, left)
	src := Source{StateDir: dir, KeyFile: filepath.Join(dir, "secret.key"), Store: fakeStore{}, Digests: fakeStore{}, Version: "v1"}
	if _, err := Write(t.Context(), src, file, o); err != nil {
		t.Fatal(err)
	}
	if work, err := filepath.Glob(filepath.Join(dir, workPrefix+"*")); err != nil || len(work) > 0 {
		t.Errorf("left in the state directory: %v, %v", work, err)
	}
	return file
}

// restored returns the files that restoring a backup creates.
func restored(except ...string) map[string]string {
	files := maps.Clone(kept)
	files["modbox.db"] = "rows"
	for _, prefix := range except {
		maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
	}
	return files
}

func TestBackupAndRestore(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want map[string]string
	}{
		"all":                {Options{}, restored()},
		"withoutCheckpoints": {Options{WithoutCheckpoints: true}, restored("checkpoints", "agents")},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, c.o)
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode of the backup: %v, %v", info, err)
			}
			dir := t.TempDir()
			m, aside, err := Restore(t.Context(), file, dir, RestoreOptions{})
			if err != nil || aside != "" || m.Version != "v1" {
				t.Fatalf("Restore = %+v, %q, %v", m, aside, err)
			}
			if diff := cmp.Diff(c.want, tree(t, dir)); diff != "" {
				t.Errorf("restored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackupThatFailsLeavesNothing(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	fill(t, dir, kept)
	src := Source{StateDir: dir, Store: fakeStore{err: errors.New("broken")}, Digests: fakeStore{}}
	if _, err := Write(t.Context(), src, filepath.Join(to, "b"), Options{}); err == nil {
		t.Error("Write of a database that cannot be copied succeeded")
	}
	src.Store = fakeStore{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, src, filepath.Join(to, "b"), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Write after its context ended = %v", err)
	}
	fill(t, to, map[string]string{"taken": "mine"})
	if _, err := Write(t.Context(), src, filepath.Join(to, "taken"), Options{}); sandbox.CodeOf(err) != sandbox.Exists {
		t.Errorf("Write over a file = %v, want code exists", err)
	}
	if diff := cmp.Diff(map[string]string{"taken": "mine"}, tree(t, to)); diff != "" {
		t.Errorf("beside the backup (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(kept, tree(t, dir)); diff != "" {
		t.Errorf("in the state directory (-want +got):\n%s", diff)
	}
}

func TestDamagedBackupsChangeNothing(t *testing.T) {
	good, err := os.ReadFile(write(t, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{"empty": nil, "text": []byte("no backup"), "cut": good[:len(good)-1], "half": good[:len(good)/2]}
	for at := 0; at < len(good); at += 1 + len(good)/50 {
		flipped := bytes.Clone(good)
		flipped[at] ^= 0x10
		bad["flipped at "+string(rune('0'+at%10))+time.Duration(at).String()] = flipped
	}
	for name, data := range bad {
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "b")
		fill(t, dir, left)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, cerr := Check(t.Context(), file)
		_, _, err := Restore(t.Context(), file, dir, RestoreOptions{Force: true})
		if (err == nil) != (cerr == nil) {
			t.Errorf("%s: Restore = %v, but Check = %v", name, err, cerr)
		}
		if err == nil { // some bits of a frame's header are unused
			if name == "cut" || name == "half" || name == "empty" || name == "text" {
				t.Errorf("%s: Restore succeeded", name)
			} else if got := tree(t, dir); got["token"] != kept["token"] || got["checkpoints/s/c/pages.img"] != kept["checkpoints/s/c/pages.img"] {
				t.Errorf("%s: Restore made other files of it", name)
			}
			continue
		}
		if diff := cmp.Diff(left, tree(t, dir)); diff != "" {
			t.Errorf("%s: the state directory (-want +got):\n%s", name, diff)
		}
	}
}

func TestRestoreSetsAsideWhatIsThere(t *testing.T) {
	file, dir := write(t, Options{}), t.TempDir()
	old := map[string]string{"modbox.db": "old", "modbox.db-wal": "old", "checkpoints/o/c/x": "old", "first-login": "old", "installation": "old", "images/index.json": "{}"}
	other := map[string]string{"lock": "1", "bin/x": "program"}
	fill(t, dir, old, other)
	if _, _, err := Restore(t.Context(), file, dir, RestoreOptions{}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Restore over a state without --force = %v, want code conflict", err)
	}
	refused := errors.New("too new")
	if _, _, err := Restore(t.Context(), file, dir, RestoreOptions{Force: true, Prepare: func(context.Context, string) error { return refused }}); !errors.Is(err, refused) {
		t.Errorf("Restore of a database that is refused = %v", err)
	}
	before := maps.Clone(old)
	maps.Copy(before, other)
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("after what was refused (-want +got):\n%s", diff)
	}
	_, aside, err := Restore(t.Context(), file, dir, RestoreOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	delete(old, "images/index.json") // the backup has none
	if diff := cmp.Diff(old, tree(t, aside)); diff != "" {
		t.Errorf("set aside (-want +got):\n%s", diff)
	}
	if err := os.RemoveAll(aside); err != nil {
		t.Fatal(err)
	}
	want := restored()
	maps.Copy(want, other)
	want["images/index.json"] = "{}"
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
}

// A restore that is interrupted at any step leaves the state before it, or, after the next start,
// the state of the backup.
func TestRestoreThatIsCutShort(t *testing.T) {
	old := map[string]string{"modbox.db": "old", "modbox.db-wal": "old", "token": "old", "checkpoints/o/c/x": "old", "first-login": "old"}
	cut := errors.New("cut short")
	for steps := 0; ; steps++ {
		dir := t.TempDir()
		fill(t, dir, old)
		ready := filepath.Join(dir, restoreDir, "ready")
		fill(t, ready, restored())
		p := plan{Replaced: managed, Aside: "aside", Names: []string{"modbox.db", "secret.key", "token", "ssh-host-key", "agents", "checkpoints", "streams"}}
		if err := writeJSON(filepath.Join(ready, planName), p); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := p.carryOut(dir, ready, func(from, to string) error {
			if n++; n > steps {
				return cut
			}
			return os.Rename(from, to)
		})
		if err := discard(dir); err != nil {
			t.Fatal(err)
		}
		if err := Finish(dir); err != nil {
			t.Fatalf("Finish after %d steps: %v", steps, err)
		}
		if diff := cmp.Diff(old, tree(t, filepath.Join(dir, "aside"))); diff != "" {
			t.Errorf("after %d steps, set aside (-want +got):\n%s", steps, diff)
		}
		if err := os.RemoveAll(filepath.Join(dir, "aside")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(restored(), tree(t, dir)); diff != "" {
			t.Errorf("after %d steps (-want +got):\n%s", steps, diff)
		}
		if err == nil {
			break
		}
	}
}

func TestFinishUndoesWhatWasNotReady(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, left, map[string]string{restoreDir + "/new/modbox.db": "half", workPrefix + "1/modbox.db": "half"})
	underWay, release, err := newWork(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Finish(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(left, tree(t, dir)); diff != "" {
		t.Errorf("the state directory (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(underWay); err != nil {
		t.Errorf("the directory of a backup under way: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

func TestRestoreOfACopyOfTheDatabase(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "copy.db")
	text := "SQLite format 3\x00 and pages"
	fill(t, filepath.Dir(file), map[string]string{"copy.db": text})
	fill(t, dir, kept, map[string]string{"modbox.db": "old", "modbox.db-wal": "old"})
	_, aside, err := Restore(t.Context(), file, dir, RestoreOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"modbox.db": "old", "modbox.db-wal": "old"}, tree(t, aside)); diff != "" {
		t.Errorf("set aside (-want +got):\n%s", diff)
	}
	if err := os.RemoveAll(aside); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(kept)
	want["modbox.db"] = text
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
}

func TestImagesOfABackup(t *testing.T) {
	state := map[string]string{
		"images/index.json":      `{"version":3}`,
		"images/records/a.json":  `{"version":3,"digest":"sha256:aa","manifest":{"digest":"sha256:m1"},"below":["sha256:dd"],"extra":1}`,
		"images/records/b.json":  `{"version":3,"digest":"sha256:bb","manifest":{"digest":"sha256:m2"}}`,
		"images/records/c.json":  `{"version":3,"digest":"sha256:cc","manifest":{"digest":"sha256:m3"}}`,
		"images/records/d.json":  `{"version":3,"digest":"sha256:dd","manifest":{"digest":"sha256:m4"}}`,
		"images/images/aa.erofs": "a", "images/images/bb.erofs": "b", "images/images/dd.erofs": "d",
		"images/layout/blobs/sha256/m4": `{"config":{"digest":"sha256:c1"}}`,
		"images/layout/oci-layout":      "{}", "images/layout/index.json": `{"schemaVersion":2,"manifests":[{"digest":"sha256:m1"},{"digest":"sha256:m2"}]}`,
		"images/layout/blobs/sha256/m1": `{"config":{"digest":"sha256:c1"},"layers":[{"digest":"sha256:l"}]}`, "images/layout/blobs/sha256/c1": "c",
		"images/layout/blobs/sha256/m2": `{"config":{"digest":"sha256:c2"},"layers":[{"digest":"sha256:l"}]}`, "images/layout/blobs/sha256/c2": "c",
		"images/layout/blobs/sha256/l": "layer", "images/tmp/x": "half",
	}
	for images, want := range map[Images][]string{
		ImagesNone: nil,
		ImagesNeeded: {
			"images/images/aa.erofs", "images/images/dd.erofs", "images/index.json", "images/layout/blobs/sha256/c1", "images/layout/blobs/sha256/l",
			"images/layout/blobs/sha256/m1", "images/layout/blobs/sha256/m4", "images/layout/index.json", "images/layout/oci-layout", "images/records/a.json",
			"images/records/d.json",
		},
		ImagesAll: {
			"images/images/aa.erofs", "images/images/bb.erofs", "images/images/dd.erofs", "images/index.json", "images/layout/blobs/sha256/c1", "images/layout/blobs/sha256/c2",
			"images/layout/blobs/sha256/l", "images/layout/blobs/sha256/m1", "images/layout/blobs/sha256/m2", "images/layout/blobs/sha256/m4", "images/layout/index.json",
			"images/layout/oci-layout", "images/records/a.json", "images/records/b.json", "images/records/c.json", "images/records/d.json",
		},
	} {
		dir, to, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "b")
		fill(t, dir, state)
		if _, err := Write(t.Context(), Source{StateDir: dir, Store: fakeStore{}, Digests: fakeStore{digests: []string{"sha256:aa", "sha256:cc"}}}, file, Options{Images: images}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Restore(t.Context(), file, to, RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		got := tree(t, to)
		delete(got, "modbox.db")
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", images, diff)
		}
		if images != ImagesNeeded {
			continue
		}
		for name, want := range map[string]string{"images/index.json": state["images/index.json"], "images/records/a.json": state["images/records/a.json"]} {
			if got[name] != want {
				t.Errorf("%s is %s, want %s", name, got[name], want)
			}
		}
		if index := got["images/layout/index.json"]; strings.Contains(index, "m2") || !strings.Contains(index, "m1") {
			t.Errorf("the layout's index is %s", index)
		}
	}
}

// A server that has not taken over the index of an earlier version has rows and descriptors of no image.
func TestBackupNeedsTheTakeoverOfImages(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{"images/images/aa.erofs": "a", "images/index.json": `{"version":2,"images":[{"digest":"sha256:aa"}]}`})
	src := Source{StateDir: dir, Store: fakeStore{}, Digests: fakeStore{digests: []string{"sha256:aa"}}}
	for _, images := range []Images{ImagesNeeded, ImagesAll} {
		if _, err := Write(t.Context(), src, filepath.Join(t.TempDir(), "b"), Options{Images: images}); err == nil || !strings.Contains(err.Error(), "start the server once") {
			t.Errorf("%s: %v, want an error that says what to do", images, err)
		}
	}
}

// TestBackupSaysWhichImagesItLacks has needed images on the disk, in the object store alone, and below such an image.
func TestBackupSaysWhichImagesItLacks(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{
		"images/index.json": `{"version":3}`, "images/images/aa.erofs": "a",
		"images/records/a.json": `{"digest":"sha256:aa","manifest":{"digest":"sha256:11"}}`, "images/records/b.json": `{"digest":"sha256:bb","below":["sha256:dd"]}`,
	})
	src := Source{
		StateDir: dir, Store: fakeStore{}, Digests: fakeStore{digests: []string{"sha256:bb", "sha256:aa", "sha256:cc"}},
		Stored: func(context.Context) ([]string, error) {
			return []string{"sha256:aa", "sha256:bb", "sha256:dd", "sha256:ee"}, nil
		},
	}
	for choice, want := range map[Images][]string{ImagesNeeded: {"sha256:bb", "sha256:dd"}, ImagesAll: {"sha256:bb", "sha256:dd"}, ImagesNone: nil} {
		file := filepath.Join(t.TempDir(), "b")
		m, err := Write(t.Context(), src, file, Options{Images: choice})
		if err != nil || !slices.Equal(m.Away, want) {
			t.Errorf("%s: Write = %q, %v, want %q", choice, m.Away, err, want)
		}
		if m, err = Check(t.Context(), file); err != nil || !slices.Equal(m.Away, want) {
			t.Errorf("%s: the backup says %q, %v, want %q", choice, m.Away, err, want)
		}
		b := bucket(t, "file://"+t.TempDir(), "")
		s, _, err := b.Write(t.Context(), src, Options{Images: choice})
		if err == nil {
			s, err = b.Get(t.Context(), s.ID)
		}
		if err != nil || !slices.Equal(s.Away, want) {
			t.Errorf("%s: the backup in a bucket says %q, %v, want %q", choice, s.Away, err, want)
		}
	}
}

// A backup without the index of images would lack the images, or be useless.
func TestBackupNeedsTheIndexOfImages(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{"images/images/aa.erofs": "a"})
	src := Source{StateDir: dir, Store: fakeStore{}, Digests: fakeStore{digests: []string{"sha256:aa"}}}
	for _, images := range []Images{ImagesNeeded, ImagesAll} {
		file := filepath.Join(t.TempDir(), "b")
		if _, err := Write(t.Context(), src, file, Options{Images: images}); err == nil || !strings.Contains(err.Error(), "images/index.json is missing") {
			t.Errorf("%s: %v, want an error that names the index", images, err)
		}
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a backup: %v", images, err)
		}
	}
	if _, err := Write(t.Context(), src, filepath.Join(t.TempDir(), "b"), Options{Images: ImagesNone}); err != nil {
		t.Errorf("without images: %v", err)
	}
}

func TestScheduleKeepsTheNewest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		fails := 1
		target := Directory{Path: dir, Keep: 2, Log: slog.New(slog.DiscardHandler), Write: func(_ context.Context, path string) error {
			if fails--; fails >= 0 {
				return errors.New("broken")
			}
			return os.WriteFile(path, nil, 0o600)
		}}
		s := Schedule{Every: time.Hour, Target: target, Log: slog.New(slog.DiscardHandler)}
		begin := time.Now()
		fill(t, dir, map[string]string{"other": "mine", Name(begin.Add(-30 * time.Minute)): "before"})
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		time.Sleep(30*time.Minute + retry + 2*time.Hour + time.Minute)
		cancel()
		<-done
		first := begin.Add(30*time.Minute + retry)
		want := []string{filepath.Join(dir, Name(first.Add(2*time.Hour))), filepath.Join(dir, Name(first.Add(time.Hour)))}
		got, err := List(dir)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("backups (-want +got):\n%s%v", diff, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "other")); err != nil {
			t.Errorf("another file in the directory: %v", err)
		}
	})
}
