package power_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/test/loopfs"
	"github.com/modbox/modbox/test/testserver"
)

// needsLoopDevices skips a test where the suites that need root do not run.
func needsLoopDevices(t *testing.T) {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("needs root and loop devices: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
}

// syncAll has everything on a file system written to the disk.
func syncAll(t *testing.T, fs *loopfs.FS) {
	t.Helper()
	dir, err := os.Open(fs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
		t.Fatal(err)
	}
}

// powerFails cuts the power of a file system that is not in use, and mounts it again.
func powerFails(fs *loopfs.FS) {
	fs.CutPower()
	fs.Unmount()
	fs.Mount()
}

func TestDirectoriesSurviveAPowerCut(t *testing.T) {
	needsLoopDevices(t)
	fs := loopfs.New(t, 64<<20)
	dir := filepath.Join(fs.Dir, "a", "b", "c")
	if err := durable.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(fs.Dir, "not-synced"), 0o700); err != nil {
		t.Fatal(err)
	}
	powerFails(fs)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		t.Errorf("the directory after the power cut: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(fs.Dir, "not-synced")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that was not synced: %v, want none: the cut is none", err)
	}
}

func TestCopiesOfDirectoriesSurviveAPowerCut(t *testing.T) {
	needsLoopDevices(t)
	fs := loopfs.New(t, 64<<20)
	other := t.TempDir() // of another file system no links can be made
	for name, from := range map[string]string{"shared": filepath.Join(fs.Dir, "from"), "copied": filepath.Join(other, "from")} {
		if err := os.MkdirAll(filepath.Join(from, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"a", "below/b"} {
			if err := os.WriteFile(filepath.Join(from, file), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		syncAll(t, fs)
		to := filepath.Join(fs.Dir, name)
		if err := durable.CopyDir(from, to); err != nil {
			t.Fatal(err)
		}
		powerFails(fs)
		for _, file := range []string{"a", "below/b"} {
			if got, err := os.ReadFile(filepath.Join(to, file)); err != nil || string(got) != file {
				t.Errorf("%s: %s after the power cut = %q, %v", name, file, got, err)
			}
		}
	}
}

// TestCopiesOfSavedStatesSurviveAPowerCut has the saved states on a file system of their
// own: the commits of the database, on another one, bring nothing of them to the disk.
func TestCopiesOfSavedStatesSurviveAPowerCut(t *testing.T) {
	needsLoopDevices(t)
	fs := loopfs.New(t, 1<<30)
	state := t.TempDir()
	own := filepath.Join(fs.Dir, "checkpoints")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Symlink(own, filepath.Join(state, "checkpoints"))); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, fs: fs, Server: testserver.StartSmallIn(t, state, "--min-free-disk", "0", "--pool-size", "0")}
	for range 3 {
		sb := marked(t, m.Server, "")
		_, err := m.Sandboxes.Pause(t.Context(), sb.ID)
		m.must("pause", err)
		syncAll(t, fs)
		cp, err := m.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "one")
		m.must("checkpoint", err)
		m.cut()
		_, err = m.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, cp.ID)
		m.kept(err == nil, "a checkpoint of a paused sandbox: %v", err)
		if err == nil {
			holdsMarker(t, m.Server, sb.ID)
		}
	}
}

// rows is a database that is copied as a file with one line.
type rows struct{}

func (rows) CopyTo(_ context.Context, path string) error {
	return os.WriteFile(path, []byte("rows"), 0o600)
}

func (rows) DigestsInUse(context.Context) ([]string, error) { return nil, nil }

// TestARestoreIsNotDoneAgainAfterAPowerCut has power fail right after a restore: a plan
// that is there again would move away what a server has written since.
func TestARestoreIsNotDoneAgainAfterAPowerCut(t *testing.T) {
	needsLoopDevices(t)
	fs := loopfs.New(t, 64<<20)
	from, file := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(filepath.Join(from, "token"), []byte("mbx_1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Write(t.Context(), backup.Source{StateDir: from, Store: rows{}, Digests: rows{}}, file, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(fs.Dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := backup.Restore(t.Context(), file, state, backup.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	powerFails(fs)
	if got, err := os.ReadFile(filepath.Join(state, "token")); err != nil || string(got) != "mbx_1" {
		t.Errorf("a restored file = %q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(state, ".restore")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plan of the restore is there again: %v", err)
	}
}
