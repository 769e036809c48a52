package image_test

import (
	"archive/tar"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// layoutPlain is the number of the one way to store files that gVisor can map.
const layoutPlain = 0

func stat(t *testing.T, files fs.FS, name string) *erofs.Stat {
	t.Helper()
	info, err := fs.Lstat(files, name)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*erofs.Stat)
	if !ok {
		t.Fatalf("Lstat(%s).Sys() = %T", name, info.Sys())
	}
	return st
}

func TestRootfsKeepsWhatTheTarSays(t *testing.T) {
	sudo := file("./usr/bin/sudo", "#!", 0o4755)
	owned := file("./home/user/f", "mine", 0o640)
	owned.Uid, owned.Gid, owned.Uname = 1000, 100000, "user"
	future := file("./cache/go", "x", 0o644)
	late := file("./late", "x", 0o644)
	late.ModTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	null := entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: "./dev/null", Mode: 0o666, Devmajor: 1, Devminor: 300}}
	files := rootOf(t,
		dir("./", 0o755), dir("./tmp/", 0o1777), sudo, link(tar.TypeLink, "./usr/bin/sudoedit", "./usr/bin/sudo"),
		link(tar.TypeSymlink, "./bin", "usr/bin"), link(tar.TypeSymlink, "./etc/hostile", "../../../etc/shadow"),
		owned, dir("./home/user", 0o700), future, late, null,
		entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "./run/pipe", Mode: 0o600}})

	type meta struct {
		Mode     fs.FileMode
		UID, GID uint32
		Time     time.Time
	}
	date := time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC) // the recipe's
	want := map[string]meta{
		"tmp":              {fs.ModeDir | fs.ModeSticky | 0o777, 0, 0, fileDate},
		"usr/bin/sudo":     {fs.ModeSetuid | 0o755, 0, 0, fileDate},
		"usr/bin/sudoedit": {fs.ModeSetuid | 0o755, 0, 0, fileDate},
		"bin":              {fs.ModeSymlink | 0o777, 0, 0, fileDate},
		"home/user":        {fs.ModeDir | 0o700, 0, 0, fileDate},
		"home/user/f":      {0o640, 1000, 100000, fileDate},
		"cache/go":         {0o644, 0, 0, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)},
		"late":             {0o644, 0, 0, date},
		"dev/null":         {fs.ModeDevice | fs.ModeCharDevice | 0o666, 0, 0, time.Unix(0, 0).UTC()},
		"run/pipe":         {fs.ModeNamedPipe | 0o600, 0, 0, time.Unix(0, 0).UTC()},
	}
	got := map[string]meta{}
	for name := range want {
		st := stat(t, files, name)
		got[name] = meta{st.Mode, st.UID, st.GID, time.Unix(int64(st.Mtime), 0).UTC()}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	if got, want := stat(t, files, "dev/null").Rdev, uint32(300&0xff|1<<8|(300&^0xff)<<12); got != want {
		t.Errorf("device number of dev/null = %#x, want %#x", got, want)
	}
	for name, want := range map[string]string{"bin": "usr/bin", "etc/hostile": "../../../etc/shadow"} {
		if got, err := fs.ReadLink(files, name); err != nil || got != want {
			t.Errorf("ReadLink(%s) = %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := fs.ReadFile(files, "usr/bin/sudoedit"); err != nil || string(got) != "#!" {
		t.Errorf("content of the hard link = %q, %v, want the file's", got, err)
	}
}

// TestRootfsStoresFilesPlain: gVisor cannot map files that are stored inline, so
// none may be, and each must have its own content all the same.
func TestRootfsStoresFilesPlain(t *testing.T) {
	want := map[string]string{}
	var entries []entry
	for _, size := range []int{0, 1, 50, 511, 4000, 4031, 4032, 4064, 4095, 4096, 4097, 8191, 8192, 100_000} {
		for _, name := range []string{"a", "b", strings.Repeat("long", 50)} {
			name = "d/" + name + "-" + time.Duration(size).String()
			want[name] = strings.Repeat(name, size/len(name)+1)[:size]
			entries = append(entries, file(name, want[name], 0o644))
		}
	}
	files := rootOf(t, entries...)
	for name, content := range want {
		if st := stat(t, files, name); st.InodeLayout != layoutPlain {
			t.Errorf("%s is stored with layout %d, want %d", name, st.InodeLayout, layoutPlain)
		}
		if got, err := fs.ReadFile(files, name); err != nil || string(got) != content {
			t.Errorf("ReadFile(%s) = %d bytes, %v, want its %d bytes", name, len(got), err, len(content))
		}
	}
}

// TestExtendedAttributes: gVisor refuses files that have any, so they are only in the layer.
func TestExtendedAttributes(t *testing.T) {
	ping := file("ping", "x", 0o755)
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00"
	ping.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": capability, "MODBOX.other": "y"}
	dir := t.TempDir()
	s := open(t, dir, &fake{tar: tarball(t, ping)})
	build(t, s, "test/main")
	_, path, err := s.Resolve(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := stat(t, readEROFS(t, path), "ping").Xattrs; len(got) != 0 {
		t.Errorf("the EROFS has extended attributes %q, want none", got)
	}
	hdr := readLayer(t, dir)["ping"]
	if hdr == nil {
		t.Fatal("the layer has no ping")
	}
	want := map[string]string{"SCHILY.xattr.security.capability": capability}
	if d := cmp.Diff(want, hdr.PAXRecords); d != "" {
		t.Errorf("records in the layer (-want +got):\n%s", d)
	}
}

// readLayer returns the headers in the layer of the only image of a store's OCI layout.
func readLayer(t *testing.T, dir string) map[string]*tar.Header {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir + "/layout")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 1 {
		t.Fatalf("the layout has %d images, want 1", n)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	headers := map[string]*tar.Header{}
	for tr := tar.NewReader(r); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[strings.TrimSuffix(hdr.Name, "/")] = hdr
	}
}

func TestHostileTars(t *testing.T) {
	ok := file("etc/passwd", "root", 0o644)
	for name, entries := range map[string][]entry{
		"parent":               {file("../etc/passwd", "x", 0o644)},
		"parent_inside":        {file("a/../../b", "x", 0o644)},
		"dots_that_stay":       {file("a/../b", "x", 0o644)},
		"absolute":             {file("/etc/passwd", "x", 0o644)},
		"long_part":            {file("a/"+strings.Repeat("x", 256), "x", 0o644)},
		"long_path":            {file(strings.Repeat("abcdefg/", 600)+"x", "x", 0o644)},
		"twice":                {ok, ok},
		"file_then_directory":  {ok, dir("etc/passwd", 0o755)},
		"directory_then_file":  {ok, file("etc", "x", 0o644)},
		"under_a_file":         {ok, file("etc/passwd/x", "x", 0o644)},
		"under_a_symlink":      {link(tar.TypeSymlink, "lib", "/host"), file("lib/x", "x", 0o644)},
		"symlink_for_the_root": {link(tar.TypeSymlink, "./", "/host")},
		"file_for_the_root":    {file(".", "x", 0o644)},
		"link_to_nothing":      {link(tar.TypeLink, "a", "b")},
		"link_to_itself":       {link(tar.TypeLink, "a", "a")},
		"link_to_a_directory":  {ok, link(tar.TypeLink, "a", "etc")},
		"link_out":             {link(tar.TypeLink, "a", "../../etc/passwd")},
		"link_through_symlink": {ok, link(tar.TypeSymlink, "s", "etc"), link(tar.TypeLink, "a", "s/passwd")},
		"long_symlink":         {link(tar.TypeSymlink, "s", strings.Repeat("x", 5000))},
		"empty_symlink":        {link(tar.TypeSymlink, "s", "")},
		"unknown_type":         {{Header: tar.Header{Typeflag: 'Z', Name: "z"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, &fake{tar: tarball(t, entries...)})
			before := tree(t, dir)
			_, err := s.Build(t.Context(), recipeOf(t, s, "test/main"), image.BuildOptions{})
			wantCode(t, "Build", err, sandbox.Invalid)
			if d := cmp.Diff(before, tree(t, dir)); d != "" {
				t.Errorf("the failed build changed the store (-before +after):\n%s", d)
			}
		})
	}
}
