package image_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// commit lays entries over a base.
func commit(t *testing.T, s *image.Store, base string, entries ...entry) image.Committed {
	t.Helper()
	done, err := s.Commit(t.Context(), image.CommitRequest{Base: base, Layer: bytes.NewReader(tarball(t, entries...))})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// contents returns every file of a root filesystem with what it holds: a file's
// data, a link's target behind an arrow, a slash for a directory.
func contents(t *testing.T, files fs.FS) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || p == ".":
			return err
		case d.IsDir():
			got[p] = "/"
		case d.Type() == fs.ModeSymlink:
			target, err := fs.ReadLink(files, p)
			got[p] = "-> " + target
			return err
		case d.Type().IsRegular():
			data, err := fs.ReadFile(files, p)
			got[p] = string(data)
			return err
		default:
			got[p] = d.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func whiteoutDevice(name string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: name}}
}

func opaqueDir(name string) entry {
	e := dir(name, 0o755)
	e.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}
	return e
}

func TestCommitMerges(t *testing.T) {
	base := []entry{
		dir("etc", 0o755), file("etc/a", "a", 0o644), file("etc/b", "b", 0o644), dir("etc/d", 0o755), file("etc/d/x", "x", 0o644),
		link(tar.TypeSymlink, "lib", "usr/lib"), file("same", "same", 0o600),
	}
	untouched := map[string]string{"etc": "/", "etc/a": "a", "etc/b": "b", "etc/d": "/", "etc/d/x": "x", "lib": "-> usr/lib", "same": "same"}
	for name, c := range map[string]struct {
		layer []entry
		want  map[string]string // the differing files; "" is a removed file
	}{
		"nothing":               {nil, nil},
		"new_and_changed":       {[]entry{file("etc/a", "A", 0o644), file("etc/new", "n", 0o644)}, map[string]string{"etc/a": "A", "etc/new": "n"}},
		"whiteout":              {[]entry{file("etc/.wh.a", "", 0)}, map[string]string{"etc/a": ""}},
		"whiteout_device":       {[]entry{whiteoutDevice("etc/a")}, map[string]string{"etc/a": ""}},
		"whiteout_of_a_tree":    {[]entry{file(".wh.etc", "", 0)}, map[string]string{"etc": "", "etc/a": "", "etc/b": "", "etc/d": "", "etc/d/x": ""}},
		"whiteout_of_nothing":   {[]entry{file("none/.wh.a", "", 0), file("etc/.wh.zzz", "", 0)}, nil},
		"opaque":                {[]entry{dir("etc", 0o755), file("etc/.wh..wh..opq", "", 0), file("etc/n", "n", 0o644)}, map[string]string{"etc/a": "", "etc/b": "", "etc/d": "", "etc/d/x": "", "etc/n": "n"}},
		"opaque_comes_last":     {[]entry{file("etc/d/n", "n", 0o644), file("etc/.wh..wh..opq", "", 0)}, map[string]string{"etc/a": "", "etc/b": "", "etc/d/x": "", "etc/d/n": "n"}},
		"opaque_xattr":          {[]entry{opaqueDir("etc"), file("etc/n", "n", 0o644)}, map[string]string{"etc/a": "", "etc/b": "", "etc/d": "", "etc/d/x": "", "etc/n": "n"}},
		"whiteout_after_new":    {[]entry{file("etc/a", "A", 0o644), file("etc/.wh.a", "", 0)}, map[string]string{"etc/a": "A"}},
		"file_over_directory":   {[]entry{file("etc", "file", 0o644)}, map[string]string{"etc": "file", "etc/a": "", "etc/b": "", "etc/d": "", "etc/d/x": ""}},
		"directory_over_file":   {[]entry{dir("same", 0o755), file("same/x", "x", 0o644)}, map[string]string{"same": "/", "same/x": "x"}},
		"directory_over_link":   {[]entry{dir("lib", 0o755)}, map[string]string{"lib": "/"}},
		"link_to_a_lower_file":  {[]entry{link(tar.TypeLink, "copy", "etc/a")}, map[string]string{"copy": "a"}},
		"aufs_metadata":         {[]entry{file(".wh..wh.plnk", "", 0)}, nil},
		"implicit_directories":  {[]entry{file("very/deep/file", "f", 0o644)}, map[string]string{"very": "/", "very/deep": "/", "very/deep/file": "f"}},
		"names_beyond_ascii":    {[]entry{file("etc/Főtanúsítvány", "u", 0o644)}, map[string]string{"etc/Főtanúsítvány": "u"}},
		"fifo":                  {[]entry{{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}}}, map[string]string{"pipe": fs.ModeNamedPipe.String()}},
		"global_header_is_none": {[]entry{{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "g", PAXRecords: map[string]string{"comment": "c"}}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, &fake{})
			under := commit(t, s, "", base...)
			over := commit(t, s, under.Digest, c.layer...)
			want := maps.Clone(untouched)
			for p, content := range c.want {
				if want[p] = content; content == "" {
					delete(want, p)
				}
			}
			if d := cmp.Diff(want, contents(t, readEROFS(t, over.Path))); d != "" {
				t.Errorf("merged files (-want +got):\n%s", d)
			}
			if int(over.FileCount) != len(want) {
				t.Errorf("FileCount = %d, want %d", over.FileCount, len(want))
			}
			// A layer alone, and a copy made of it and its base, show the same.
			other := open(t, t.TempDir(), &fake{})
			alone := commitAlone(t, other, commit(t, other, "", base...).Digest, c.layer...)
			if d := cmp.Diff(want, contents(t, readEROFS(t, commit(t, other, alone.Digest).Path))); d != "" {
				t.Errorf("the layer alone over its base (-want +got):\n%s", d)
			}
			if !alone.Alone || int(alone.FileCount) != len(want) {
				t.Errorf("the layer alone = %+v, want %d files", alone, len(want))
			}
			// The OCI layers say the same as the merged files.
			if d := cmp.Diff(want, contents(t, readEROFS(t, replay(t, dir, over).Path))); d != "" {
				t.Errorf("the OCI layers laid over each other (-want +got):\n%s", d)
			}
		})
	}
}

func TestCommitKeepsMetadata(t *testing.T) {
	s := open(t, t.TempDir(), &fake{})
	owned := file("bin/su", "#!", 0o4755)
	owned.Uid, owned.Gid = 70000, 12
	base := commit(t, s, "", owned, dir("tmp", 0o1777), file("zero", "", 0o640), link(tar.TypeLink, "bin/sudo", "bin/su"))
	over := commit(t, s, base.Digest, file("new", "n", 0o2711), link(tar.TypeLink, "a", "bin/su"), link(tar.TypeLink, "z", "zero"))
	files := readEROFS(t, over.Path)
	su := stat(t, files, "bin/su")
	if su.Mode != fs.ModeSetuid|0o755 || su.UID != 70000 || su.GID != 12 || int64(su.Mtime) != fileDate.Unix() || su.Nlink != 3 {
		t.Errorf("bin/su = %+v, want setuid 755, 70000:12, its date and 3 names", su)
	}
	for _, other := range []string{"a", "bin/sudo"} {
		if got := stat(t, files, other); got.Ino != su.Ino {
			t.Errorf("%s has inode %d, want %d, the one of bin/su", other, got.Ino, su.Ino)
		}
		if data, err := fs.ReadFile(files, other); err != nil || string(data) != "#!" {
			t.Errorf("ReadFile(%s) = %q, %v", other, data, err)
		}
	}
	if got, want := stat(t, files, "z").Ino, stat(t, files, "zero").Ino; got != want {
		t.Errorf("z has inode %d, want %d, the one of the empty file", got, want)
	}
	if got := stat(t, files, "tmp").Mode; got != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("tmp = %v, want sticky 777", got)
	}
	if got := stat(t, files, "new"); got.Mode != fs.ModeSetgid|0o711 {
		t.Errorf("new = %v, want setgid 711", got.Mode)
	}
	if got := stat(t, files, ".").Nlink; got != 4 {
		t.Errorf("the root has %d links, want 4", got)
	}
}

// replay makes an image from the layers of a commit's OCI image alone.
func replay(t *testing.T, dir string, done image.Committed) image.Committed {
	t.Helper()
	s := open(t, t.TempDir(), &fake{})
	var under image.Committed
	for _, layer := range layersOf(t, dir, done.ManifestDigest) {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		if _, err := buf.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		under, err = s.Commit(t.Context(), image.CommitRequest{Base: under.Digest, Layer: &buf, CreatedBy: "replay"})
		if err != nil {
			t.Fatal(err)
		}
	}
	return under
}

func TestCommitIsDeterministic(t *testing.T) {
	entries := []entry{file("b", strings.Repeat("b", 5000), 0o644), dir("d", 0o755), file("d/a", "a", 0o644), link(tar.TypeLink, "c", "b")}
	first := commit(t, open(t, t.TempDir(), &fake{}), "", entries...)
	dir := t.TempDir()
	s := open(t, dir, &fake{})
	second := commit(t, s, "", entries...)
	slices.Reverse(entries[:3])
	reversed := commit(t, s, "", entries...)
	if first.Digest != second.Digest || first.LayerDigest != second.LayerDigest || first.ManifestDigest != second.ManifestDigest {
		t.Errorf("the same commit in two stores: %+v and %+v", first, second)
	}
	if reversed.Digest != second.Digest {
		t.Errorf("the order of entries matters: %s and %s", second.Digest, reversed.Digest)
	}
	before := tree(t, dir+"/images")
	info, err := os.Stat(second.Path)
	if err != nil {
		t.Fatal(err)
	}
	again := commit(t, open(t, dir, &fake{}), "", entries...)
	after, err := os.Stat(again.Path)
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest != second.Digest || !os.SameFile(info, after) {
		t.Errorf("the second commit wrote the file again")
	}
	if d := cmp.Diff(before, tree(t, dir+"/images")); d != "" {
		t.Errorf("the second commit changed the images (-before +after):\n%s", d)
	}
}

func TestCommitNames(t *testing.T) {
	s := open(t, t.TempDir(), &fake{})
	base, err := s.Commit(t.Context(), image.CommitRequest{
		Layer: bytes.NewReader(tarball(t, file("a", "a", 0o644))), Name: "team/app", Description: "an app",
		Config: &spec.Config{Cmd: []string{"serve"}, Env: []string{"A=1"}, User: "app"},
	})
	if err != nil {
		t.Fatal(err)
	}
	img, path, err := s.Resolve(t.Context(), "team/app")
	if err != nil {
		t.Fatal(err)
	}
	if img.Digest != base.Digest || path != base.Path || img.Tag != "latest" || img.Description != "an app" || img.Config.User != "app" {
		t.Errorf("Resolve = %+v, %s, want the commit", img, path)
	}
	over := commit(t, s, base.Digest, file("b", "b", 0o644))
	if over.Name != "" || over.Ref() != over.Digest || over.Config.User != "app" {
		t.Errorf("a commit without a name = %+v, want no name and the base's configuration", over.Image)
	}
	if img, _, err := s.Resolve(t.Context(), over.Digest); err != nil || img.Digest != over.Digest {
		t.Errorf("Resolve(digest) = %+v, %v", img, err)
	}
	images, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(images, func(i spec.Image) bool { return i.Name == "" }); i >= 0 {
		t.Errorf("List has %+v, which has no name", images[i])
	}
	if _, err := s.Commit(t.Context(), image.CommitRequest{Layer: strings.NewReader(""), Name: "Not A Name"}); fieldOf(err) != "name" {
		t.Errorf("Commit with a bad name: %v, want an error about the name", err)
	}
	if _, err := s.Commit(t.Context(), image.CommitRequest{Base: over.LayerDigest, Layer: strings.NewReader("")}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Commit on an unknown base: %v, want not_found", err)
	}
}

func TestCommitRefuses(t *testing.T) {
	huge := file("big", "", 0o644)
	huge.Size = 1 << 40
	var sparse bytes.Buffer // only a header: the reader says what is missing before the limit
	if err := tar.NewWriter(&sparse).WriteHeader(&huge.Header); err != nil {
		t.Fatal(err)
	}
	many := make([]entry, 0, 101)
	for i := range 101 {
		many = append(many, file(fmt.Sprintf("f%d", i), "", 0o644))
	}
	for name, c := range map[string]struct {
		layer []byte
		want  sandbox.Code
	}{
		"claims_too_much":   {sparse.Bytes(), sandbox.TooLarge},
		"has_too_much":      {tarball(t, file("x", strings.Repeat("x", 2<<20), 0o644)), sandbox.TooLarge},
		"too_many":          {tarball(t, many...), sandbox.TooLarge},
		"endless_zeros":     {make([]byte, 2<<20), sandbox.TooLarge},
		"no_tar":            {bytes.Repeat([]byte("no tar"), 1000), sandbox.Invalid},
		"cut_short":         {tarball(t, file("x", strings.Repeat("x", 5000), 0o644))[:2000], sandbox.Invalid},
		"escape":            {tarball(t, file("../x", "x", 0o644)), sandbox.Invalid},
		"through_a_symlink": {tarball(t, file("lib/x", "x", 0o644)), sandbox.Invalid},
		"whiteout_of_dots":  {tarball(t, file("etc/.wh...", "", 0)), sandbox.Invalid},
		"owner":             {tarball(t, entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "x", Uid: 1 << 33}}), sandbox.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, &fake{})
			base := commit(t, s, "", link(tar.TypeSymlink, "lib", "/usr/lib"))
			release, err := s.Hold(t.Context(), base.Digest) // as a commit does, which leaves a trace
			if err != nil {
				t.Fatal(err)
			}
			release()
			before := tree(t, dir)
			_, err = s.Commit(t.Context(), image.CommitRequest{Base: base.Digest, Layer: bytes.NewReader(c.layer), MaxBytes: 1 << 20, MaxEntries: 100})
			wantCode(t, "Commit", err, c.want)
			if d := cmp.Diff(before, tree(t, dir)); d != "" {
				t.Errorf("the refused layer changed the store (-before +after):\n%s", d)
			}
		})
	}
}

// layersOf returns the layers of an OCI image in a store's layout.
func layersOf(t *testing.T, dir, manifest string) []v1.Layer {
	t.Helper()
	h, err := v1.NewHash(manifest)
	if err != nil {
		t.Fatal(err)
	}
	img, err := layout.Path(dir + "/layout").Image(h)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	return layers
}
