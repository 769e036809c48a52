package rootfs

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/image/stack"
)

// randomLayer returns a tar that changes, links and removes some of a few names. Files that a layer may link to are in
// files, which it changes.
func randomLayer(t *testing.T, r *rand.Rand, files map[string]bool) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	parts := []string{"a", "b", "c"}
	name := func() string {
		var names []string
		for range 1 + r.IntN(3) {
			names = append(names, parts[r.IntN(len(parts))])
		}
		return path.Join(names...)
	}
	for range 1 + r.IntN(8) {
		h := &tar.Header{Name: name(), Mode: int64(0o600 + r.IntN(64)), Uid: r.IntN(3), ModTime: time.Unix(int64(1000+r.IntN(5)), 0)}
		content := fmt.Sprint(r.IntN(1000))
		switch r.IntN(9) {
		case 0, 1, 2:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
			files[h.Name] = true
		case 3, 4:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case 5:
			h.Typeflag, h.Linkname = tar.TypeSymlink, parts[r.IntN(len(parts))]
		case 6:
			if len(files) == 0 {
				continue
			}
			all := slices.Sorted(maps.Keys(files))
			h.Typeflag, h.Linkname = tar.TypeLink, all[r.IntN(len(all))]
		case 7:
			h.Typeflag, h.Name = tar.TypeReg, path.Join(path.Dir(h.Name), ".wh."+path.Base(h.Name))
		case 8:
			h.Typeflag, h.Name = tar.TypeReg, path.Join(path.Dir(h.Name), ".wh..wh..opq")
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// described returns what a root filesystem has: the kind, attributes and content of each name, and the first name of
// the same file.
func described(t *testing.T, erofs string) map[string]string {
	t.Helper()
	s, err := OpenStack(erofs)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, first := map[string]string{}, map[place]string{}
	var walk func(name string, in inode)
	walk = func(name string, in inode) {
		if first[in.place()] == "" {
			first[in.place()] = name
		}
		content := []byte{}
		if !in.mode.IsDir() && in.size > 0 {
			if content, err = io.ReadAll(in.content()); err != nil {
				t.Fatal(err)
			}
		}
		got[name] = fmt.Sprint(in.mode, in.uid, in.gid, in.rdev, in.mtime.Unix(), string(content), " is ", first[in.place()])
		if !in.mode.IsDir() {
			return
		}
		if err := s.children(in, func(base string, child inode) error { walk(path.Join(name, base), child); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	root, err := s.rootDir()
	if err != nil {
		t.Fatal(err)
	}
	walk(".", root)
	return got
}

// unpacker is an [Unpacker] in a test.
type unpacker struct {
	*testing.T
	*Unpacker
}

func newUnpacker(t *testing.T) unpacker {
	t.Helper()
	dir := t.TempDir()
	u, err := NewUnpacker(t.Context(), NewScratch(dir, 0), "", dir, Limits{Bytes: 1 << 20, Entries: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return unpacker{t, u}
}

// apply applies a layer, and returns whether it is acceptable.
func (u unpacker) apply(layer []byte) bool {
	file := filepath.Join(u.TempDir(), "layer")
	if err := os.WriteFile(file, layer, 0o600); err != nil {
		u.Fatal(err)
	}
	sum := sha256.New()
	sum.Write(layer)
	return u.Layer(u.Context(), file, SHA256(sum)) == nil
}

// chain writes layers as a chain of root filesystems in a directory, and returns the topmost and the number of names
// in it. It ends a root filesystem after some of the layers, and begins again from what it has written after some.
func chain(t *testing.T, dir string, r *rand.Rand, layers [][]byte) (top string, names int64) {
	t.Helper()
	u := newUnpacker(t)
	var base *Base
	for i, layer := range layers {
		if !u.apply(layer) {
			t.Fatal("a layer that one unpacker takes, another refuses")
		}
		if i < len(layers)-1 && r.IntN(2) == 0 {
			continue
		}
		root, err := u.Write(t.Context(), fmt.Sprint("root-", i), base)
		if err != nil {
			t.Fatal(err)
		}
		digest, _, err := Digest(t.Context(), root.EROFS, nil)
		if err != nil {
			t.Fatal(err)
		}
		top, names = filepath.Join(dir, stack.FileName(digest)), root.Files
		if err := os.Rename(root.EROFS, top); err != nil {
			t.Fatal(err)
		}
		files, err := OpenStack(top)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(files.Close)
		next := &Base{Stack: files, Digests: []string{digest}}
		if base != nil {
			next.Digests = append(next.Digests, base.Digests...)
		}
		if base = next; r.IntN(2) == 0 {
			if err := u.Over(t.Context(), files); err != nil {
				t.Fatal(err)
			}
		}
	}
	return top, names
}

// TestChain: layers that become a chain of root filesystems have the same files as layers that become one.
func TestChain(t *testing.T) {
	whiteouts := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		one, files := newUnpacker(t), map[string]bool{}
		var layers [][]byte
		for len(layers) < 1+r.IntN(6) {
			layer := randomLayer(t, r, files)
			if !newUnpackerOf(t, layers).apply(layer) {
				continue // it links to nothing, or its path leads through a file
			}
			layers = append(layers, layer)
			one.apply(layer)
		}
		whole, err := one.Write(t.Context(), "root.erofs", nil)
		if err != nil {
			t.Fatal(err)
		}
		top, names := chain(t, t.TempDir(), r, layers)
		want, got := described(t, whole.EROFS), described(t, top)
		if !maps.Equal(got, want) || names != int64(len(want)-1) || whole.Files != names {
			t.Fatalf("seed %d: the chain has %d names:\n%s\nwant %d:\n%s", seed, names, lines(got), whole.Files, lines(want))
		}
		whiteouts += bytes.Count(bytes.Join(layers, nil), []byte(".wh."))
	}
	if whiteouts < 200 {
		t.Errorf("the layers have only %d whiteouts", whiteouts)
	}
}

// newUnpackerOf returns an unpacker that has applied layers.
func newUnpackerOf(t *testing.T, layers [][]byte) unpacker {
	t.Helper()
	u := newUnpacker(t)
	for _, layer := range layers {
		u.apply(layer)
	}
	return u
}

func lines(files map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, name+" "+files[name])
	}
	return strings.Join(all, "\n")
}
