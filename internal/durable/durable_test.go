package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
)

// That it survives a loss of power is shown by test/power.

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// tree returns the files below a directory, with their content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, rerr := filepath.Rel(dir, name)
		files[rel] = string(data)
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCopyDir(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "from", "a"), "one")
	write(t, filepath.Join(dir, "from", "below", "b"), "two")
	if err := durable.CopyDir(filepath.Join(dir, "from"), filepath.Join(dir, "to")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, filepath.Join(dir, "from")), tree(t, filepath.Join(dir, "to"))); diff != "" {
		t.Errorf("the copy (-want +got):\n%s", diff)
	}
}

// elsewhere makes a directory on another file system than dir.
func elsewhere(t *testing.T, dir string) string {
	t.Helper()
	device := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Dev
	}
	for _, parent := range []string{"/dev/shm", "/var/tmp", "."} {
		if device(parent) == device(dir) {
			continue
		}
		other, err := os.MkdirTemp(parent, "copy-*")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(other) })
		return other
	}
	t.Skip("there is a single file system")
	return ""
}

// A copy that cannot share a file has its holes.
func TestCopyDirToAnotherFileSystem(t *testing.T) {
	dir := t.TempDir()
	other := elsewhere(t, dir)
	write(t, filepath.Join(dir, "from", "a"), "one")
	const size = 64 << 20
	if err := os.Truncate(filepath.Join(dir, "from", "a"), size); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(other, "to")
	if err := durable.CopyDir(filepath.Join(dir, "from"), to); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(to, "a"), &st); err != nil || st.Nlink != 1 || st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("the copy has %d names, %d bytes and %d on the disk, %v; want a file of its own with holes", st.Nlink, st.Size, st.Blocks*512, err)
	}
	if diff := cmp.Diff(tree(t, filepath.Join(dir, "from")), tree(t, to)); diff != "" {
		t.Error("the copy has another content")
	}
}

func TestCopyDirThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "from", "a"), "one")
	write(t, filepath.Join(dir, "to", "there"), "already")
	want := tree(t, dir)
	for _, from := range []string{"from", "missing"} {
		if err := durable.CopyDir(filepath.Join(dir, from), filepath.Join(dir, "to")); err == nil {
			t.Errorf("copy of %s to a directory that is there succeeded", from)
		}
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files afterwards (-want +got):\n%s", diff)
	}
	if parts, err := filepath.Glob(filepath.Join(dir, "part-*")); err != nil || len(parts) > 0 {
		t.Errorf("left: %v, %v", parts, err)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time it is there
		if err := durable.MkdirAll(filepath.Join(dir, "a", "b")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "a", "b"))
		if err != nil || info.Mode() != fs.ModeDir|0o700 {
			t.Fatalf("the directory: %v, %v", info, err)
		}
	}
	write(t, filepath.Join(dir, "file"), "")
	for _, name := range []string{"file", "file/below"} {
		if err := durable.MkdirAll(filepath.Join(dir, name)); err == nil {
			t.Errorf("MkdirAll(%q) succeeded, where a file is", name)
		}
	}
}
