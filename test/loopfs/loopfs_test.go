package loopfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/test/loopfs"
)

// start makes a file system where the suites on real gVisor run, which need root as well.
func start(t *testing.T) *loopfs.FS {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("needs root and loop devices: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
	return loopfs.New(t, 64<<20)
}

func TestPowerCutLosesWhatWasNotSynced(t *testing.T) {
	fs := start(t)
	write := func(name string, sync bool) {
		t.Helper()
		f, err := os.Create(filepath.Join(fs.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("content"); err != nil {
			t.Fatal(err)
		}
		if sync {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("synced", true)
	write("not-synced", false)
	fs.CutPower()
	if _, err := os.Create(filepath.Join(fs.Dir, "later")); err == nil {
		t.Error("create after the power cut succeeded")
	}
	fs.Unmount()
	fs.Mount()
	if b, err := os.ReadFile(filepath.Join(fs.Dir, "synced")); string(b) != "content" {
		t.Errorf("synced file = %q, %v; want its content", b, err)
	}
	if b, _ := os.ReadFile(filepath.Join(fs.Dir, "not-synced")); string(b) == "content" {
		t.Error("the file that was not synced survived: the cut is none")
	}
}

func TestFullFileSystemRefusesWrites(t *testing.T) {
	fs := start(t)
	remove := fs.Fill("filler", 0)
	if err := os.WriteFile(filepath.Join(fs.Dir, "more"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write to a full file system: %v, want ENOSPC", err)
	}
	remove()
	if err := os.WriteFile(filepath.Join(fs.Dir, "more"), make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("write after there is room again: %v", err)
	}
}
