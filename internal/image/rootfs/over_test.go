package rootfs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// layerOf returns a tar of names: directories end with a slash, "name=target" is a hard link, and "name~user" belongs to the user with the number of the length of that word.
func layerOf(t *testing.T, names ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		name, user, _ := strings.Cut(name, "~")
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Uid: len(user)}
		if link, target, ok := strings.Cut(name, "="); ok {
			h.Name, h.Linkname, h.Typeflag = link, target, tar.TypeLink
		} else if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// write lays names over a root filesystem, "" for none: alone, or in a copy. It returns the path and the
// number of names.
func write(t *testing.T, dir, base string, alone bool, names ...string) (string, int64, error) {
	t.Helper()
	return writeOver(t, dir, base, alone, 0, names...)
}

// writeOver is write, which merges the layers over the lowest keep, unless that is 0.
func writeOver(t *testing.T, dir, base string, alone bool, keep int, names ...string) (string, int64, error) {
	t.Helper()
	tree := NewScratch(t.TempDir(), 0).Tree(t.Context(), "")
	defer tree.Close()
	if base != "" {
		below, err := OpenStack(base)
		if err != nil {
			t.Fatal(err)
		}
		defer below.Close()
		if alone {
			further, err := stack.ReadFile(base)
			if err != nil {
				t.Fatal(err)
			}
			root, err := below.rootDir()
			if err != nil {
				t.Fatal(err)
			}
			n, err := below.count(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			own := "sha256:" + strings.TrimSuffix(filepath.Base(base), ".erofs")
			tree.Over(Base{Stack: below, Digests: append([]string{own}, further...), Files: n, Keep: keep})
		} else if err := tree.Read(below); err != nil {
			t.Fatal(err)
		}
	}
	w, err := NewWriter(Spec{Dir: t.TempDir(), Date: time.Unix(0, 0), Limits: Limits{Bytes: 1 << 30, Entries: 1 << 20}}, tree)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.ReadLayer(t.Context(), layerOf(t, names...), nil); err != nil {
		return "", 0, err
	}
	layer, err := w.FinishLayer()
	if err != nil {
		t.Fatal(err)
	}
	root, err := w.Finish(t.Context(), layer)
	if err != nil {
		return "", 0, err
	}
	digest, _, err := Digest(t.Context(), root.EROFS, nil)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, stack.FileName(digest))
	if err := os.Rename(root.EROFS, name); err != nil {
		t.Fatal(err)
	}
	return name, root.Files, nil
}

// namesIn lists all names in a root filesystem.
func namesIn(t *testing.T, file string) (names []string) {
	t.Helper()
	for _, f := range filesIn(t, file) {
		names = append(names, f.Path)
	}
	return names
}

// filesIn lists all files in a root filesystem.
func filesIn(t *testing.T, file string) []sandbox.SnapshotFile {
	t.Helper()
	r, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	page, err := r.Files(t.Context(), sandbox.SnapshotFileQuery{Path: "/", Recursive: true, Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	return page.Files
}

// TestWhiteoutsOfALayer compares layers with copies, for whiteouts that no sandbox writes.
func TestWhiteoutsOfALayer(t *testing.T) {
	dir := t.TempDir()
	base, _, err := write(t, dir, "", false, "a/", "a/b/", "a/b/c", "a/b/d/", "a/b/d/e", "f", "g/", "g/h")
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range [][]string{
		{".wh.a", "a/.wh.b"},
		{".wh.a", "a/b/.wh..wh..opq"},
		{".wh.f", "f/.wh.b"},
		{".wh.a", "a/new"},
		{"a/.wh..wh..opq", "a/b/.wh.c"},
		{"a/b/.wh.c", "a/.wh..wh..opq"},
		{"a/b/d/.wh.e", "a/.wh..wh..opq", "a/new"},
		{"a/b/.wh.c", "a/.wh.b"},
		{"a/b/.wh..wh..opq", "a/.wh.b"},
		{"a/b/.wh..wh..opq"},
		{"g/.wh..wh..opq"},
		{"a/b/new", "a/.wh.b"},
		{"a/b/.wh.none", "none/.wh.none", "none/.wh..wh..opq"},
		{"a/.wh..wh..opq", "a/b/", "f2=f"},
		{"a/.wh..wh..opq", "a/b/", "link=a/b/c"},
		{".wh.a", "link=a/b/c"},
	} {
		copied, files, err := write(t, dir, base, false, layer...)
		layered, counted, layeredErr := write(t, dir, base, true, layer...)
		if (err == nil) != (layeredErr == nil) {
			t.Errorf("%q: the copy: %v, the layer: %v", layer, err, layeredErr)
		}
		if err != nil || layeredErr != nil {
			continue
		}
		if got, want := namesIn(t, layered), namesIn(t, copied); !slices.Equal(got, want) || counted != files {
			t.Errorf("%q: the layer has %d names %q, want %d %q", layer, counted, got, files, want)
		}
	}
}

// TestManyNamesInLayers checks directories of many blocks, and that a settled layer can be cancelled.
func TestManyNamesInLayers(t *testing.T) {
	dir := t.TempDir()
	var all, odd, want []string
	for i := range 2000 {
		name := fmt.Sprintf("d/%c%d", '!'+i%90, i)
		if strings.Contains(name[2:], "/") || strings.Contains(name[2:], "=") {
			continue
		}
		all = append(all, name)
		if i%2 == 1 {
			odd = append(odd, "d/.wh."+name[2:])
		} else {
			want = append(want, "/"+name)
		}
	}
	want = append(want, "/d", "/d/new")
	slices.Sort(want)
	base, _, err := write(t, dir, "", false, append([]string{"d/"}, all...)...)
	if err != nil {
		t.Fatal(err)
	}
	over, n, err := write(t, dir, base, true, append(odd, "d/new")...)
	if err != nil || n != int64(len(want)) {
		t.Fatalf("%d names, %v, want %d", n, err, len(want))
	}
	got := namesIn(t, over)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d names %.300q, want %d", len(got), got, len(want))
	}
	s, err := OpenStack(over)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range all {
		_, ok, err := s.find(name)
		if err != nil || ok != slices.Contains(want, "/"+name) {
			t.Fatalf("find %s: %v, %v", name, ok, err)
		}
	}
	if _, ok, err := s.find("d/none"); ok || err != nil {
		t.Errorf("find a missing name: %v, %v", ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root, err := s.rootDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.count(ctx, root); !errors.Is(err, context.Canceled) {
		t.Errorf("count: %v", err)
	}
	tree := newTree()
	tree.Over(Base{Stack: s})
	if err := tree.makeOpaque("d"); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.settle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("settle: %v", err)
	}
}

// TestMergedLayers compares layers that have the files of two layers between them and the lowest root filesystem with
// copies of everything, and with layers over these.
func TestMergedLayers(t *testing.T) {
	dir := t.TempDir()
	base, _, err := write(t, dir, "", false, "a/~four", "a/b/~four", "a/b/c", "a/b/d/~four", "a/b/d/e", "f", "g/~four", "g/h", "k/~four", "k/l/~four", "k/l/m")
	if err != nil {
		t.Fatal(err)
	}
	changes := [][]string{
		{".wh.a", "g/new"}, {"a/", "a/b/", "a/b/other"}, {"a/b/.wh..wh..opq", "a/b/d/", "a/b/d/e2"}, {"g/.wh.h", "f2=f"}, {".wh.f", "f/"}, {".wh.k", "k"},
		{"k/.wh.l", "k/l"}, {".wh.g", "g/", "g/i"}, {"a/b/.wh.d", "a/b/d"}, {"n/o/p"}, {".wh.n", "n"}, {"a/.wh..wh..opq", "a/b/c"},
		{".wh.f", "f2=g/h"}, {"k/l/m", "k/.wh..wh..opq"}, {".wh.a", ".wh.g", ".wh.k", ".wh.f", ".wh.n"}, {"a/b/d/e", "k/l/new"},
	}
	compared := 0
	for i, first := range changes {
		for j, second := range changes {
			if (i+j)%2 == 0 {
				continue // half of all pairs take long enough
			}
			third := changes[(3*i+5*j)%len(changes)]
			copied, layered, merged := base, base, ""
			var files, counted int64
			for n, change := range [][]string{first, second, third} {
				change = slices.Clone(change)
				for k := range change {
					if !strings.ContainsAny(change[k], "=") {
						change[k] += "~" + strings.Repeat("u", n+1) // so that files of each layer differ
					}
				}
				var errCopied, errLayered error
				copied, files, errCopied = writeOver(t, dir, copied, false, 0, change...)
				below := layered
				layered, counted, errLayered = writeOver(t, dir, below, true, 0, change...)
				if n == 2 && errLayered == nil {
					merged, counted, errLayered = writeOver(t, dir, below, true, 1, change...)
				}
				if (errCopied == nil) != (errLayered == nil) {
					t.Fatalf("%q, %q, %q: the copy: %v, the layer: %v", first, second, third, errCopied, errLayered)
				}
				if errCopied != nil {
					copied = ""
					break
				}
			}
			if copied == "" {
				continue // a change of what is not there
			}
			compared++
			if below, err := stack.ReadFile(merged); err != nil || len(below) != 1 {
				t.Fatalf("below the merged layers lie %q, %v", below, err)
			}
			if got, want := namesIn(t, merged), namesIn(t, copied); !slices.Equal(got, want) || counted != files {
				t.Errorf("%q, %q, %q: the merged layers have %d names %q, want %d %q", first, second, third, counted, got, files, want)
			}
			if got, want := filesIn(t, merged), filesIn(t, layered); !slices.Equal(got, want) {
				t.Errorf("%q, %q, %q: the merged layers have %v, want %v", first, second, third, got, want)
			}
		}
	}
	if compared < 50 {
		t.Errorf("%d cases only", compared)
	}
}
