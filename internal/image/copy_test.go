package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// packed returns a tar.gz of headers; the name of a file is its content.
func packed(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	w := tar.NewWriter(zw)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Size = h.Name, int64(len(h.Name))
		}
		if err := errors.Join(w.WriteHeader(&h), second(io.WriteString(w, content))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

func second(_ int, err error) error { return err }

func plainFile(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Uid: 7, Gid: 8}
}

func directory(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o750, Uid: 7, Gid: 8}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}
}

var fewFiles = rootfs.ArchiveLimits{Bytes: 1 << 20, Entries: 100}

// TestHostileArchive: a context cannot name anything outside, or take all memory.
func TestHostileArchive(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	many := make([]tar.Header, 101)
	for i := range many {
		many[i] = plainFile(fmt.Sprint(i))
	}
	deep := plainFile(strings.Repeat("d/", 200) + "f")
	for name, c := range map[string]struct {
		archive io.Reader
		want    sandbox.Code
	}{
		"absolute":       {packed(t, plainFile("/etc/passwd")), sandbox.Invalid},
		"dots":           {packed(t, plainFile("a/../../b")), sandbox.Invalid},
		"through-a-link": {packed(t, symlink("a", "/etc"), plainFile("a/passwd")), sandbox.Invalid},
		"link-out":       {packed(t, tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "../../etc/passwd"}), sandbox.Invalid},
		"link-to-dir":    {packed(t, directory("d"), tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "d"}), sandbox.Invalid},
		"device":         {packed(t, tar.Header{Typeflag: tar.TypeChar, Name: "a", Devmajor: 1, Devminor: 3}), sandbox.Invalid},
		"long-name":      {packed(t, plainFile(strings.Repeat("x", 300))), sandbox.Invalid},
		"no-archive":     {strings.NewReader(strings.Repeat("no archive", 1000)), sandbox.Invalid},
		"cut":            {io.LimitReader(packed(t, plainFile("a"), plainFile("b")), 60), sandbox.Invalid},
		"many":           {packed(t, many...), sandbox.TooLarge},
		"deep":           {packed(t, deep), sandbox.TooLarge},
		"bomb":           {bomb(t), sandbox.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := s.Scratch().ReadArchive(t.Context(), "", c.archive, fewFiles)
			if err == nil {
				files.Close()
			}
			wantCode(t, "ReadArchive", err, c.want)
		})
	}
}

// bomb is an archive that is small and holds much.
func bomb(t *testing.T) io.Reader {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	w := tar.NewWriter(zw)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

// copied returns what a copy writes as a layer, a line for each entry.
func copied(t *testing.T, s *image.Store, over io.Reader, req rootfs.CopyRequest) (string, error) {
	t.Helper()
	under, err := s.Scratch().ReadArchive(t.Context(), "", over, fewFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer under.Close()
	c, err := rootfs.NewCopy(t.Context(), req)
	if err != nil {
		return "", err
	}
	var layer bytes.Buffer
	if err := c.WriteLayer(t.Context(), s.Scratch(), under, &layer); err != nil {
		return "", err
	}
	var lines strings.Builder
	for tr := tar.NewReader(&layer); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return lines.String(), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s %o %d:%d %s%s\n", h.Name, h.Mode, h.Uid, h.Gid, content, h.Linkname)
	}
}

func TestCopy(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	base := func() io.Reader {
		return packed(t, directory("usr"), directory("usr/lib"), symlink("lib", "usr/lib"), symlink("out", "../../../usr"),
			plainFile("file"), symlink("loop", "loop"), directory("etc"),
			tar.Header{Typeflag: tar.TypeReg, Name: "etc/x", Mode: 0o644})
	}
	from, err := s.Scratch().ReadArchive(t.Context(), "", packed(t, plainFile("a"), plainFile("b.txt"), directory("d"), plainFile("d/x"), directory("d/lib"), plainFile("d/lib/y"),
		symlink("s", "d"), tar.Header{Typeflag: tar.TypeLink, Name: "d/z", Linkname: "d/x"}, directory("w"), plainFile("w/.wh.file")), fewFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	mode := uint32(0o4711)
	for name, c := range map[string]struct {
		req  rootfs.CopyRequest
		want string // "!" begins words of an error
	}{
		"file":           {rootfs.CopyRequest{Sources: []string{"a"}, To: "/new"}, "new 640 0:0 a\n"},
		"into-dir":       {rootfs.CopyRequest{Sources: []string{"a"}, To: "/usr"}, "usr/a 640 0:0 a\n"},
		"new-dir":        {rootfs.CopyRequest{Sources: []string{"a"}, To: "/n/m/", Owner: "5:6"}, "n/ 755 5:6 \nn/m/ 755 5:6 \nn/m/a 640 5:6 a\n"},
		"keep-owner":     {rootfs.CopyRequest{Sources: []string{"a"}, To: "/new", KeepOwners: true}, "new 640 7:8 a\n"},
		"mode":           {rootfs.CopyRequest{Sources: []string{"a"}, To: "/new", Mode: &mode}, "new 4711 0:0 a\n"},
		"follows-base":   {rootfs.CopyRequest{Sources: []string{"d/lib"}, To: "/lib"}, "usr/lib/y 640 0:0 d/lib/y\n"},
		"merges-link":    {rootfs.CopyRequest{Sources: []string{"d"}, To: "/"}, "usr/lib/y 640 0:0 d/lib/y\nx 640 0:0 d/x\nz 640 0:0 x\n"},
		"stays-inside":   {rootfs.CopyRequest{Sources: []string{"a"}, To: "/out/"}, "usr/a 640 0:0 a\n"},
		"source-link":    {rootfs.CopyRequest{Sources: []string{"s/x"}, To: "/new"}, "new 640 0:0 d/x\n"},
		"wildcard":       {rootfs.CopyRequest{Sources: []string{"?.t*"}, To: "/n/"}, "n/ 755 0:0 \nn/b.txt 640 0:0 b.txt\n"},
		"inline":         {rootfs.CopyRequest{Inline: []rootfs.InlineFile{{Name: "i", Content: "text"}}, To: "/n"}, "n 644 0:0 text\n"},
		"clamped-source": {rootfs.CopyRequest{Sources: []string{"../../a"}, To: "/n"}, "n 640 0:0 a\n"},
		"nothing":        {rootfs.CopyRequest{Sources: []string{"nosuch"}, To: "/n"}, "!there is no \"nosuch\""},
		"two-to-a-file":  {rootfs.CopyRequest{Sources: []string{"a", "b.txt"}, To: "/n"}, "!no / at its end"},
		"dir-to-file":    {rootfs.CopyRequest{Sources: []string{"d"}, To: "/file"}, "!is not a directory"},
		"through-file":   {rootfs.CopyRequest{Sources: []string{"a"}, To: "/file/x/y"}, "!not a directory"},
		"loop":           {rootfs.CopyRequest{Sources: []string{"a"}, To: "/loop/x"}, "!too many symbolic links"},
		"whiteout":       {rootfs.CopyRequest{Sources: []string{"w"}, To: "/"}, "!cannot be in an image"},
		"no-user":        {rootfs.CopyRequest{Sources: []string{"a"}, To: "/n", Owner: "nobody"}, "!no user"},
	} {
		t.Run(name, func(t *testing.T) {
			c.req.From = from
			got, err := copied(t, s, base(), c.req)
			if want, fails := strings.CutPrefix(c.want, "!"); fails {
				if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, %v, want an error with %q", got, err, want)
				}
				return
			}
			if d := cmp.Diff(c.want, got); err != nil || d != "" {
				t.Errorf("%v; layer (-want +got):\n%s", err, d)
			}
		})
	}
}

// TestWildcardsThroughLinks: links that lead back up give files names without end,
// of which a pattern matches only so many.
func TestWildcardsThroughLinks(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	files, err := s.Scratch().ReadArchive(t.Context(), "", packed(t, directory("d"), symlink("d/a", "."), symlink("d/b", ".")), fewFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	_, err = rootfs.NewCopy(t.Context(), rootfs.CopyRequest{From: files, Sources: []string{"d" + strings.Repeat("/*", 20)}, To: "/x/"})
	wantCode(t, "NewCopy", err, sandbox.TooLarge)
}

// TestLayersAddUp: layers that are small do not make an image of any size.
func TestLayersAddUp(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	digest := ""
	commit := func(name string) error {
		t.Helper()
		zr, err := gzip.NewReader(packed(t, plainFile(name+"/1"), plainFile(name+"/2")))
		if err != nil {
			t.Fatal(err)
		}
		done, err := s.Commit(t.Context(), image.CommitRequest{Base: digest, Layer: zr, MaxFiles: 6})
		digest = done.Digest
		return err
	}
	for _, name := range []string{"a", "b"} { // three names each
		if err := commit(name); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "Commit of a third layer", commit("c"), sandbox.TooLarge)
}

// TestManyArchives: what several archives unpack to is bounded together.
func TestManyArchives(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	inner, err := io.ReadAll(packed(t, plainFile("a"), plainFile("b")))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		entries int
		want    sandbox.Code
	}{{4, ""}, {3, sandbox.TooLarge}} {
		_, err := copied(t, s, packed(t), rootfs.CopyRequest{
			Inline: []rootfs.InlineFile{{Name: "1.tar", Content: string(inner)}, {Name: "2.tar", Content: string(inner)}},
			To:     "/x/", Unpack: true, UnpackMax: rootfs.ArchiveLimits{Bytes: 1 << 20, Entries: c.entries},
		})
		if sandbox.CodeOf(err) != c.want {
			t.Errorf("unpacking two archives of two files with room for %d: %v, want %q", c.entries, err, c.want)
		}
	}
}

func TestIgnore(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	files, err := s.Scratch().ReadArchive(t.Context(), "", packed(t, plainFile("a.log"), plainFile("d/b.log"), plainFile("d/keep.log"), plainFile("e/c"), plainFile("f")), fewFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if err := files.Ignore(t.Context(), []string{"**/*.log", "!d/keep.log", "e"}); err != nil {
		t.Fatal(err)
	}
	got, err := copied(t, s, packed(t, directory("x")), rootfs.CopyRequest{From: files, Sources: []string{"."}, To: "/"})
	if want := "d/ 755 0:0 \nd/keep.log 640 0:0 d/keep.log\nf 640 0:0 f\n"; err != nil || got != want {
		t.Errorf("what is left: %v\n%s, want\n%s", err, got, want)
	}
}

// TestBuiltImagesAreTheirOwners: nobody else finds one, by name or digest.
func TestBuiltImagesAreTheirOwners(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	base := build(t, s, "test/main")
	finish := func(owner sandbox.WorkspaceID, env string) spec.Image {
		t.Helper()
		req := image.FinishRequest{Base: base.Digest, Owner: owner, Name: "app", Tag: "v1"}
		req.Config.Env = []string{env}
		img, err := s.Finish(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	mine, theirs := finish("me", "A=1"), finish("they", "A=1")
	if mine.Digest == theirs.Digest || mine.Digest == base.Digest {
		t.Fatalf("digests: mine %s, theirs %s, the base's %s", mine.Digest, theirs.Digest, base.Digest)
	}
	if got, err := s.Built(t.Context(), "me", "app:v1"); err != nil || got.Digest != mine.Digest {
		t.Errorf("Built(me) = %v, %v", got.Digest, err)
	}
	_, err := s.Built(t.Context(), "others", "app:v1")
	wantCode(t, "Built(others)", err, sandbox.NotFound)
	if got, err := s.LookupFor(t.Context(), "me", "app:v1"); err != nil || got.Digest != mine.Digest {
		t.Errorf("LookupFor(me) = %v, %v", got.Digest, err)
	}
	for _, name := range []string{"app:v1", "app@" + mine.Digest, mine.Digest} {
		_, err = s.LookupFor(t.Context(), "others", name)
		wantCode(t, "LookupFor("+name+") for others", err, sandbox.NotFound)
	}
	_, err = s.Lookup(t.Context(), "app:v1")
	wantCode(t, "Lookup", err, sandbox.NotFound)
	for who, want := range map[sandbox.WorkspaceID]sandbox.Code{"me": "", "they": sandbox.NotFound} {
		if _, _, err := s.Ensure(t.Context(), mine.Digest, registry.Puller{Workspace: who}, nil); sandbox.CodeOf(err) != want {
			t.Errorf("Ensure(%s) of my digest: %v, want %q", who, err, want)
		}
	}
	if !s.Stale(mine.Digest, registry.Puller{Workspace: "they"}) {
		t.Error("others need not ask for my digest")
	}
	moved := finish("me", "A=2")
	if got, err := s.Built(t.Context(), "me", "app:v1"); err != nil || got.Digest != moved.Digest {
		t.Errorf("after another build Built(me) = %v, %v, want %s", got.Digest, err, moved.Digest)
	}
	if _, err := s.Discard(t.Context(), image.Remover{Workspace: "me"}, "app:v1"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Built(t.Context(), "me", "app:v1")
	wantCode(t, "Built after its removal", err, sandbox.NotFound)
	if _, err := s.Built(t.Context(), "they", "app:v1"); err != nil {
		t.Errorf("theirs, after mine was removed: %v", err)
	}
	if err := s.ForgetBuilt(t.Context(), "they"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Built(t.Context(), "they", "app:v1")
	wantCode(t, "Built of a workspace that is gone", err, sandbox.NotFound)
	if config, err := s.OCIConfig(theirs); err != nil || len(config.Config.Env) != 1 || config.Config.Env[0] != "A=1" {
		t.Errorf("OCIConfig = %+v, %v", config, err)
	}
}
