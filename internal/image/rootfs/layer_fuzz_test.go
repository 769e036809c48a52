package rootfs_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/image/compressed"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// fuzzBytes and fuzzEntries bound the tars of the fuzz tests.
const (
	fuzzBytes   = 1 << 20
	fuzzEntries = 1000
)

// seeds adds the tars from which fuzzing starts.
func seeds(f *testing.F) {
	for _, headers := range [][]tar.Header{
		nil,
		{
			{Typeflag: tar.TypeDir, Name: "./"}, {Typeflag: tar.TypeReg, Name: "a/b", Size: 3}, {Typeflag: tar.TypeLink, Name: "c", Linkname: "a/b"},
			{Typeflag: tar.TypeSymlink, Name: "d", Linkname: ".."}, {Typeflag: tar.TypeChar, Name: "e", Devmajor: 1}, {Typeflag: tar.TypeFifo, Name: "f"},
		},
		{
			{Typeflag: tar.TypeReg, Name: "etc/passwd", Size: 5000}, {Typeflag: tar.TypeReg, Name: "etc/.wh.shadow"}, {Typeflag: tar.TypeReg, Name: "var/.wh..wh..opq"},
			{Typeflag: tar.TypeChar, Name: "gone"}, {Typeflag: tar.TypeDir, Name: "opaque/", PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
		},
		{
			{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "/usr/bin"}, {Typeflag: tar.TypeReg, Name: "bin/sh", Mode: 0o4755, Uid: 1000, Gid: 1 << 31},
			{Typeflag: tar.TypeReg, Name: strings.Repeat("long/", 40) + "name", ModTime: time.Unix(1<<34, 5)}, {Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}},
			{Typeflag: tar.TypeBlock, Name: "g", Devminor: 300, Format: tar.FormatGNU}, {Typeflag: tar.TypeCont, Name: "h"},
		},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
}

// refused fails unless an error says that the tar is at fault.
func refused(t *testing.T, err error) {
	t.Helper()
	if code := sandbox.CodeOf(err); code != sandbox.Invalid && code != sandbox.TooLarge && code != sandbox.Unsupported {
		t.Fatalf("the error has code %q: %v", code, err)
	}
}

// sound fails unless go-erofs and this package read the same files in an EROFS.
func sound(t *testing.T, root rootfs.Result) {
	t.Helper()
	f, err := os.Open(root.EROFS)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	var theirs []string
	err = fs.WalkDir(image, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		theirs = append(theirs, "/"+name)
		if d.Type().IsRegular() {
			_, err = fs.ReadFile(image, name)
		}
		return err
	})
	if err != nil {
		t.Fatalf("an accepted tar gave an EROFS that cannot be read: %v", err)
	}
	r, err := rootfs.Open(root.EROFS)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	page, err := r.Files(t.Context(), sandbox.SnapshotFileQuery{Path: "/", Recursive: true, Limit: 1 << 20, Hash: true})
	if err != nil || page.More {
		t.Fatalf("files: %v, more: %v", err, page.More)
	}
	var ours []string
	for _, file := range page.Files {
		ours = append(ours, file.Path)
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	if d := cmp.Diff(theirs, ours); d != "" || int64(len(ours)) != root.Files {
		t.Fatalf("go-erofs and this package read different files of an image with %d names (-theirs +ours):\n%s", root.Files, d)
	}
}

// FuzzTar writes a tar stream as a root filesystem: a tar is refused, or gives a sound EROFS and a layer that gives
// the same again.
func FuzzTar(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		write := func(from io.Reader) (rootfs.Result, error) {
			dir := t.TempDir()
			tree := rootfs.NewScratch(dir, 0).Tree(t.Context(), "")
			defer tree.Close()
			return rootfs.Write(t.Context(), from, rootfs.Spec{
				Dir: dir, Date: time.Unix(1_700_000_000, 0), FutureDated: []string{"/a"}, Limits: rootfs.Limits{Bytes: fuzzBytes, Entries: fuzzEntries}, Tree: tree,
			})
		}
		first, err := write(bytes.NewReader(data))
		if err != nil {
			refused(t, err)
			return
		}
		sound(t, first)
		layer, err := first.Layer.Layer().Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer layer.Close()
		second, err := write(layer)
		if sandbox.CodeOf(err) == sandbox.TooLarge {
			return // the headers of the layer are longer
		}
		if err != nil {
			t.Fatalf("the layer of an accepted tar is refused: %v", err)
		}
		one, errOne := os.ReadFile(first.EROFS)
		other, errOther := os.ReadFile(second.EROFS)
		if err := errors.Join(errOne, errOther); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, other) || first.Layer.DiffID != second.Layer.DiffID {
			t.Fatal("the layer of an accepted tar gives another root filesystem")
		}
	})
}

// FuzzLayer lays a tar over a layer of another tool.
func FuzzLayer(f *testing.F) {
	seeds(f)
	var base bytes.Buffer
	w := tar.NewWriter(&base)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/"}, {Typeflag: tar.TypeReg, Name: "etc/shadow"}, {Typeflag: tar.TypeReg, Name: "var/x/y"}, {Typeflag: tar.TypeReg, Name: "gone"},
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/var"}, {Typeflag: tar.TypeLink, Name: "var/z", Linkname: "/gone"},
		{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "../usr/../usr/bin"}, {Typeflag: tar.TypeReg, Name: "usr/bin/sh"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		u, err := rootfs.NewUnpacker(t.Context(), rootfs.NewScratch(dir, 0), "", dir, rootfs.Limits{Bytes: fuzzBytes, Entries: fuzzEntries})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		for i, layer := range [][]byte{base.Bytes(), data} {
			file := filepath.Join(dir, "layer")
			if err := os.WriteFile(file, layer, 0o600); err != nil {
				t.Fatal(err)
			}
			sum := sha256.New()
			if plain, err := compressed.Open(bytes.NewReader(layer)); err == nil {
				_, _ = io.Copy(sum, io.LimitReader(plain, 2*fuzzBytes)) // a damaged layer is refused below
				_ = plain.Close()
			}
			if err := u.Layer(t.Context(), file, rootfs.SHA256(sum)); err != nil {
				if i == 0 {
					t.Fatal(err)
				}
				refused(t, err)
				return
			}
		}
		root, err := u.Write(t.Context(), "root.erofs", nil)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, root)
	})
}

// FuzzArchive reads an archive whose files are copied into images.
func FuzzArchive(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := rootfs.NewScratch(t.TempDir(), 0).ReadArchive(t.Context(), "", bytes.NewReader(data), rootfs.ArchiveLimits{Bytes: fuzzBytes, Entries: fuzzEntries})
		if err != nil {
			refused(t, err)
			return
		}
		defer files.Close()
		for _, name := range []string{"a/b", "etc/passwd", "bin/sh", "d", "c"} {
			if _, err := files.ReadFile(name, fuzzBytes); err != nil && sandbox.CodeOf(err) != sandbox.FileNotFound {
				refused(t, err)
			}
			if _, err := files.HasDir(name); err != nil {
				refused(t, err)
			}
		}
	})
}
