package gvisor_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/sandbox"
)

// damages are ways in which a file may be damaged.
var damages = map[string]func(t *testing.T, name string){
	"FlippedBit": func(t *testing.T, name string) {
		edit(t, name, func(f *os.File, size int64) error {
			b := make([]byte, 1)
			if _, err := f.ReadAt(b, size/2); err != nil {
				return err
			}
			b[0] ^= 1
			_, err := f.WriteAt(b, size/2)
			return err
		})
	},
	"CutByte": func(t *testing.T, name string) {
		edit(t, name, func(f *os.File, size int64) error { return f.Truncate(size - 1) })
	},
	"Emptied": func(t *testing.T, name string) {
		edit(t, name, func(f *os.File, _ int64) error { return f.Truncate(0) })
	},
	"Overwritten": func(t *testing.T, name string) { // at most 1 MiB, from the middle
		edit(t, name, func(f *os.File, size int64) error {
			_, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(min(1<<20, size-size/2))), size/2)
			return err
		})
	},
	"Deleted": func(t *testing.T, name string) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	},
}

func edit(t *testing.T, name string, change func(f *os.File, size int64) error) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil {
		err = change(f, info.Size())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Damage to any file of a checkpoint is found: then the memory is not restored, but the files are;
// if only the files or a manifest are damaged, the memory is.
func TestDamageOfEachFileIsFound(t *testing.T) {
	r := newRig(t)
	spec := newSpec(inMemory)
	g := r.start(t, spec)
	g.must(fill)
	good := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true, Layer: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	if memory, files := r.Verify(t.Context(), good); memory != nil || files != nil {
		t.Fatalf("Verify of what is whole = %v, %v", memory, files)
	}
	entries, err := os.ReadDir(good)
	if err != nil || len(entries) != 6 {
		t.Fatalf("files of a checkpoint: %v, %v, want 6", entries, err)
	}
	for _, e := range entries {
		memoryGood, filesGood := true, true
		switch {
		case e.Name() == "layer.tar":
			filesGood = false
		case !strings.HasPrefix(e.Name(), "manifest"):
			memoryGood = false
		}
		for damage, do := range damages {
			t.Run(e.Name()+"/"+damage, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "bad")
				if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
					t.Fatal(err)
				}
				do(t, filepath.Join(dir, e.Name()))
				memory, files := r.Verify(t.Context(), dir)
				if (memory == nil) != memoryGood || (files == nil) != filesGood {
					t.Errorf("Verify = %v, %v, want memory good %v, files good %v", memory, files, memoryGood, filesGood)
				}
				_, err := r.Restore(t.Context(), spec, dir)
				if code := sandbox.CodeOf(err); (err == nil) != memoryGood || err != nil && code != sandbox.Unsupported && code != sandbox.NotFound {
					t.Errorf("Restore = %v, want success %v, or code unsupported or not_found", err, memoryGood)
				}
				if err == nil {
					if err := r.Destroy(t.Context(), spec.ID); err != nil {
						t.Fatal(err)
					}
				}
				if ids, err := r.List(t.Context()); err != nil || len(ids) > 0 {
					t.Errorf("List after a Restore that failed = %v, %v", ids, err)
				}
				err = readLayer(r, dir)
				if (err == nil) != filesGood || err != nil && sandbox.CodeOf(err) != sandbox.Unsupported {
					t.Errorf("reading the files = %v, want success %v, or code unsupported", err, filesGood)
				}
			})
		}
	}
	r.restore(t, spec, good).wantFilled()
}

func readLayer(r *rig, dir string) error {
	layer, err := r.OpenLayer(dir)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, layer)
	return errors.Join(err, layer.Close())
}

// Checkpoints of versions without digests are restored as before.
func TestCheckpointWithoutDigestsIsRestored(t *testing.T) {
	r := newRig(t)
	r.UseForwarding() // as that version did
	spec := newSpec(inMemory)
	g := r.start(t, spec)
	g.must(fill)
	dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true, Layer: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	if err := gvisor.MakePlain(dir); err != nil {
		t.Fatal(err)
	}
	if memory, files := r.Verify(t.Context(), dir); memory != nil || files != nil {
		t.Errorf("Verify = %v, %v", memory, files)
	}
	if err := readLayer(r, dir); err != nil {
		t.Errorf("reading the files: %v", err)
	}
	r.restore(t, spec, dir).wantFilled()
}

// A checkpoint that a fork restores immediately has no digests, because the parent would wait for
// them.
func TestVolatileCheckpointHasNoDigests(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	for volatile, want := range map[bool]int{true: 0, false: 3} {
		dir := r.checkpoint(t, g, driver.CheckpointOptions{Volatile: volatile})
		if n, err := gvisor.CountSums(dir); err != nil || n != want {
			t.Errorf("volatile %v: digests of %d files, %v, want %d", volatile, n, err, want)
		}
	}
}
