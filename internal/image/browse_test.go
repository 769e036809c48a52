package image_test

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// someTree is a root filesystem of two layers.
func someTree(t *testing.T, s *image.Store) string {
	t.Helper()
	base := commit(t, s, "", dir("etc", 0o755), file("etc/gone", "x", 0o644), file("etc/hosts", "h", 0o644))
	su := file("srv/su", "#!su", 0o4755)
	su.Uid, su.Gid = 12, 34
	device := entry{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "srv/dev", Devmajor: 8, Mode: 0o600}}
	return commit(t, s, base.Digest, file("etc/.wh.gone", "", 0), dir("srv", 0o750), su, link(tar.TypeLink, "srv/sudo", "srv/su"),
		link(tar.TypeSymlink, "srv/out", "/etc/hosts"), device, dir("srv/a", 0o755), file("srv/a/z", "z", 0o600), file("srv/a.b", "", 0o644),
		file("srv/\xff", "odd", 0o644)).Digest
}

func readFiles(t *testing.T, s *image.Store, digest string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	r, err := s.OpenRootfs(t.Context(), digest)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	defer r.Close()
	return r.Files(t.Context(), q)
}

func readArchive(ctx context.Context, s *image.Store, digest, name string, compress bool) (io.ReadCloser, error) {
	r, err := s.OpenRootfs(ctx, digest)
	if err != nil {
		return nil, err
	}
	archive, err := r.Archive(ctx, name, compress)
	if err != nil {
		r.Close()
	}
	return archive, err
}

func listed(t *testing.T, s *image.Store, digest string, q sandbox.SnapshotFileQuery) (names []string, page sandbox.SnapshotFilePage) {
	t.Helper()
	page, err := readFiles(t, s, digest, q)
	if err != nil {
		t.Fatalf("Files(%+v): %v", q, err)
	}
	for _, f := range page.Files {
		names = append(names, f.Path)
	}
	return names, page
}

func TestFiles(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	digest := someTree(t, s)
	all := []string{"/etc", "/etc/hosts", "/srv", "/srv/a", "/srv/a/z", "/srv/a.b", "/srv/dev", "/srv/out", "/srv/su", "/srv/sudo", "/srv/\xff"}
	for _, c := range []struct {
		q    sandbox.SnapshotFileQuery
		want []string
	}{
		{sandbox.SnapshotFileQuery{}, []string{"/etc", "/srv"}},
		{sandbox.SnapshotFileQuery{Path: "/", Recursive: true}, all},
		{sandbox.SnapshotFileQuery{Path: "../srv//a/", Recursive: true}, []string{"/srv/a/z"}},
		{sandbox.SnapshotFileQuery{Path: "srv/su", Recursive: true}, []string{"/srv/su"}},
	} {
		if got, _ := listed(t, s, digest, c.q); !slices.Equal(got, c.want) {
			t.Errorf("Files(%+v) = %q, want %q", c.q, got, c.want)
		}
	}
	// However long the pages are, together they are all.
	for limit := 1; limit <= len(all); limit++ {
		var got []string
		q := sandbox.SnapshotFileQuery{Recursive: true, Limit: limit}
		for {
			names, page := listed(t, s, digest, q)
			got = append(got, names...)
			if len(names) > limit {
				t.Fatalf("a page of %d has %d", limit, len(names))
			}
			if !page.More {
				break
			}
			q.After = names[len(names)-1]
		}
		if !slices.Equal(got, all) {
			t.Errorf("pages of %d are %q, want %q", limit, got, all)
		}
	}
	_, page := listed(t, s, digest, sandbox.SnapshotFileQuery{Path: "/srv", Hash: true})
	files := map[string]sandbox.SnapshotFile{}
	for _, f := range page.Files {
		files[f.Path] = f
	}
	sum := sha256.Sum256([]byte("#!su"))
	want := sandbox.SnapshotFile{
		Path: "/srv/su", Mode: fs.ModeSetuid | 0o755, UID: 12, GID: 34, Size: 4, ModTime: files["/srv/su"].ModTime, SHA256: hex.EncodeToString(sum[:]),
	}
	if d := cmp.Diff(want, files["/srv/su"]); d != "" {
		t.Errorf("a file (-want +got):\n%s", d)
	}
	if !want.ModTime.Equal(fileDate) {
		t.Errorf("its time is %v, want %v", want.ModTime, fileDate)
	}
	if f := files["/srv/out"]; f.Target != "/etc/hosts" || f.Mode.Type() != fs.ModeSymlink || f.SHA256 != "" {
		t.Errorf("a symbolic link = %+v", f)
	}
}

func TestFilesWithHashesEndInTime(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	big := string(make([]byte, sandbox.SnapshotHashMax/2+1))
	digest := commit(t, s, "", file("a", big, 0o644), file("b", big, 0o644), file("c", big+big, 0o644)).Digest
	names, page := listed(t, s, digest, sandbox.SnapshotFileQuery{Hash: true})
	if !slices.Equal(names, []string{"/a"}) || !page.More {
		t.Errorf("Files = %q, more %v, want those alone that can be read at once", names, page.More)
	}
	names, page = listed(t, s, digest, sandbox.SnapshotFileQuery{Hash: true, After: "/a"})
	if !slices.Equal(names, []string{"/b", "/c"}) || page.More || page.Files[0].SHA256 == "" || page.Files[1].SHA256 != "" {
		t.Errorf("Files = %q, more %v, want the one that is too big without its hash", names, page.More)
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	digest := someTree(t, s)
	for _, c := range []struct {
		q    sandbox.SnapshotFileQuery
		code sandbox.Code
	}{
		{sandbox.SnapshotFileQuery{Path: "/none"}, sandbox.FileNotFound},
		{sandbox.SnapshotFileQuery{Path: "/etc/gone"}, sandbox.FileNotFound},
		{sandbox.SnapshotFileQuery{Path: "/srv/su/x"}, sandbox.FileNotFound},
		{sandbox.SnapshotFileQuery{Path: "/srv/out/x"}, sandbox.FileNotFound},
		{sandbox.SnapshotFileQuery{Path: strings.Repeat("x", sandbox.SnapshotPathMax+1)}, sandbox.Invalid},
		{sandbox.SnapshotFileQuery{Path: "/srv\x00"}, sandbox.Invalid},
		{sandbox.SnapshotFileQuery{Path: "/srv", After: "/etc/hosts"}, sandbox.Invalid},
	} {
		if _, err := readFiles(t, s, digest, c.q); sandbox.CodeOf(err) != c.code {
			t.Errorf("Files(%.50q) = %v, want code %s", c.q.Path, err, c.code)
		}
		if c.q.After != "" {
			continue
		}
		if _, err := readArchive(t.Context(), s, digest, c.q.Path, true); sandbox.CodeOf(err) != c.code {
			t.Errorf("Archive(%.50q) = %v, want code %s", c.q.Path, err, c.code)
		}
	}
	if _, err := readFiles(t, s, "sha256:"+strings.Repeat("0", 64), sandbox.SnapshotFileQuery{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Files of nothing = %v, want not found", err)
	}
}

// unpacked returns the entries of an archive.
func unpacked(t *testing.T, r io.ReadCloser, compressed bool) (out []string) {
	t.Helper()
	defer r.Close()
	var in io.Reader = r
	if compressed {
		zr, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		in = zr
	}
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%c %s %o %d:%d %s%s", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid, h.Linkname, data))
	}
}

func TestArchive(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	digest := someTree(t, s)
	srv := []string{
		"5 a/ 755 0:0 ", "0 a/z 600 0:0 z", "0 a.b 644 0:0 ", "2 out 777 0:0 /etc/hosts", "0 su 4755 12:34 #!su", "1 sudo 4755 12:34 su", "0 \xff 644 0:0 odd",
	}
	for _, c := range []struct {
		path     string
		compress bool
		want     []string
	}{
		{"/srv", false, srv},
		{"/srv/", true, srv},
		{"/srv/sudo", true, []string{"0 sudo 4755 12:34 #!su"}},
		{"/etc", false, []string{"0 hosts 644 0:0 h"}},
	} {
		r, err := readArchive(t.Context(), s, digest, c.path, c.compress)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, unpacked(t, r, c.compress)); d != "" {
			t.Errorf("Archive(%s) (-want +got):\n%s", c.path, d)
		}
	}
}

func TestArchiveEndsWithItsContext(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	digest := commit(t, s, "", file("a", noise(1<<20), 0o644), file("b", noise(1<<20), 0o644)).Digest
	ctx, cancel := context.WithCancel(t.Context())
	r, err := readArchive(ctx, s, digest, "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, 1000); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("reading on = %v, want the context's error", err)
	}
}
