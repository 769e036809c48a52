package layer_test

import (
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/sandbox"
)

const mib = 1 << 20

// TestFilesFitTheMounts checks that gVisor gets as many files as the mount configurations name, and
// that files cannot fill the memory.
func TestFilesFitTheMounts(t *testing.T) {
	id := sandbox.NewID()
	for name, c := range map[string]struct {
		disk   int64
		plain  bool
		mounts int // beside root and agent
		files  int
	}{
		"InMemory":       {32 * mib, false, 0, 0},
		"OnDisk":         {512 * mib, false, 1, 2},
		"OnDiskPlainTmp": {512 * mib, true, 0, 1},
		"PlainTmp":       {32 * mib, true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := sandbox.Resources{MemoryBytes: 256 * mib, DiskBytes: c.disk, CPUMilli: 1000}
			l := layer.Of(driver.Spec{ID: id, Resources: r, PlainTmp: c.plain})
			dir := layer.Dir(t.TempDir())
			var spec specs.Spec
			if n := len(l.Mounts(&spec, r, dir, 1, "")) - 2; n != c.mounts {
				t.Errorf("%d mounts have files, want %d", n, c.mounts)
			}
			if hasTmp := len(spec.Mounts) == 1; hasTmp == c.plain {
				t.Errorf("mounts: %v, plain /tmp %v", spec.Mounts, c.plain)
			}
			if l.OnDisk != (c.files > 0) {
				t.Errorf("on disk: %v", l.OnDisk)
			}
			inMemory := l.ShmBytes + layer.DefaultTmpfs(r)
			if !l.OnDisk {
				inMemory += l.TmpBytes + r.DiskBytes
			}
			if inMemory > r.MemoryBytes*3/4 {
				t.Errorf("files may take %d bytes of %d bytes of memory", inMemory, r.MemoryBytes)
			}
			if !l.OnDisk {
				return
			}
			files, err := dir.Create(id, l)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != c.files {
				t.Errorf("%d files, want %d", len(files), c.files)
			}
			for _, f := range files {
				if _, err := f.Write(make([]byte, mib)); err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			if n := dir.Bytes(id); n < int64(c.files)*mib {
				t.Errorf("Bytes = %d, want at least %d MiB", n, c.files)
			}
			if owners, err := dir.Owners(); err != nil || len(owners) != 1 || !owners[id] {
				t.Errorf("Owners = %v, %v, want %s", owners, err, id)
			}
			if err := dir.Remove(id); err != nil {
				t.Fatal(err)
			}
			if owners, err := dir.Owners(); err != nil || len(owners) != 0 {
				t.Errorf("Owners after Remove = %v, %v", owners, err)
			}
		})
	}
}

// TestRemoveDead checks that the files of a running box, and strange files, remain.
func TestRemoveDead(t *testing.T) {
	dir := layer.Dir(t.TempDir())
	l := layer.Layout{OnDisk: true, PlainTmp: true}
	live, dead := sandbox.NewID(), sandbox.NewID()
	open, err := dir.Create(live, l)
	if err != nil {
		t.Fatal(err)
	}
	defer open[0].Close()
	closed, err := dir.Create(dead, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := closed[0].Write(make([]byte, mib)); err != nil {
		t.Fatal(err)
	}
	closed[0].Close()
	strange := filepath.Join(string(dir), "strange")
	if err := os.WriteFile(strange, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	freed, err := dir.RemoveDead()
	if err != nil || freed < mib {
		t.Errorf("RemoveDead = %d, %v, want 1 MiB or more", freed, err)
	}
	if owners, err := dir.Owners(); err != nil || !owners[live] || owners[dead] {
		t.Errorf("Owners = %v, %v, want only %s", owners, err, live)
	}
	if _, err := os.Stat(strange); err != nil {
		t.Error(err)
	}
	if _, err := layer.Dir(filepath.Join(string(dir), "missing")).RemoveDead(); err != nil {
		t.Errorf("RemoveDead of a missing directory: %v", err)
	}
}
