package agent_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agentapi"
)

var formats = []agentapi.Format{agentapi.FormatTarGzip, agentapi.FormatZip, agentapi.FormatTar}

// member is an entry of an archive made by a test.
type member struct {
	kind   byte // a type flag of tar
	name   string
	body   string
	target string
	mode   int64
}

// tarOf packs members, optionally compressed with gzip.
func tarOf(t testing.TB, zipped bool, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	var w io.Writer = &buf
	var z *gzip.Writer
	if zipped {
		z = gzip.NewWriter(&buf)
		w = z
	}
	tw := tar.NewWriter(w)
	for _, m := range members {
		h := &tar.Header{Typeflag: m.kind, Name: m.name, Linkname: m.target, Mode: m.mode, Size: int64(len(m.body)), ModTime: time.Unix(1.7e9, 0)}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, m.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if z != nil {
		z.Close()
	}
	return buf.Bytes()
}

// zipOf packs members, which have type flags of tar.
func zipOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: time.Unix(1.7e9, 0)}
		mode := fs.FileMode(m.mode)
		switch m.kind {
		case tar.TypeDir:
			mode |= fs.ModeDir
		case tar.TypeSymlink:
			mode, m.body = mode|fs.ModeSymlink, m.target
		case tar.TypeFifo:
			mode |= fs.ModeNamedPipe
		case tar.TypeChar:
			mode |= fs.ModeDevice | fs.ModeCharDevice
		}
		h.SetMode(mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, m.body)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (e *env) unpack(t testing.TB, dir string, archive []byte, format agentapi.Format) error {
	t.Helper()
	return e.UnpackArchive(t.Context(), dir, bytes.NewReader(archive), agentapi.ArchiveOptions{Format: format})
}

// snapshot describes everything below a directory, one line for each file.
func snapshot(t testing.TB, dir string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", info.Mode(), name)
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q %d", content, info.ModTime().Unix())
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		if name != "." {
			lines = append(lines, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestArchiveRoundTrip(t *testing.T) {
	e := start(t)
	from := filepath.Join(e.root, "from")
	for name, content := range map[string]string{
		"a.txt": "hello", "deep/er/b.bin": "\x00\xff", "empty": "", "deep/run.sh": "#!/bin/sh\n",
		strings.Repeat("long/", 60) + strings.Repeat("x", 200): "far down",
	} {
		path := filepath.Join(from, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(path, time.Unix(1.6e9, 0), time.Unix(1.6e9, 0))
	}
	os.Chmod(filepath.Join(from, "deep/run.sh"), 0o755)
	os.Mkdir(filepath.Join(from, "nothing"), 0o700)
	os.Symlink("../a.txt", filepath.Join(from, "deep/link"))
	os.Symlink("nowhere", filepath.Join(from, "dangling"))
	want := snapshot(t, from)
	if err := syscall.Mkfifo(filepath.Join(from, "pipe"), 0o644); err != nil { // is skipped
		t.Fatal(err)
	}
	for _, format := range formats {
		for _, told := range []agentapi.Format{format, ""} {
			body, err := e.PackArchive(t.Context(), "/from", format)
			if err != nil {
				t.Fatalf("PackArchive(%s) = %v", format, err)
			}
			to := fmt.Sprintf("/to/%s/%q", format, told)
			err = e.UnpackArchive(t.Context(), to, body, agentapi.ArchiveOptions{Format: told})
			body.Close()
			if err != nil {
				t.Fatalf("UnpackArchive(%s as %q) = %v", format, told, err)
			}
			if diff := cmp.Diff(want, snapshot(t, filepath.Join(e.root, to))); diff != "" {
				t.Errorf("%s as %q: %s", format, told, diff)
			}
		}
	}
}

func TestPackingOneFile(t *testing.T) {
	e := start(t)
	e.write(t, "/dir/only.txt", "content", agentapi.WriteOptions{Parents: true, Mode: 0o640})
	for _, format := range formats {
		body, err := e.PackArchive(t.Context(), "/dir/only.txt", format)
		if err != nil {
			t.Fatal(err)
		}
		to := "/out-" + string(format)
		if err := e.UnpackArchive(t.Context(), to, body, agentapi.ArchiveOptions{}); err != nil {
			t.Fatal(err)
		}
		body.Close()
		if got := e.read(t, to+"/only.txt", 0, -1); got != "content" {
			t.Errorf("%s: %q", format, got)
		}
	}
	for path, want := range map[string]agentapi.ErrorCode{"/nothing": agentapi.CodeNoFile, "/a\x00": agentapi.CodeInvalid} {
		var refused *agentapi.Error
		if _, err := e.PackArchive(t.Context(), path, ""); !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("PackArchive(%s) = %v, want %s", path, err, want)
		}
	}
}

func TestUnpackingReplacesAndMerges(t *testing.T) {
	for _, zipped := range []bool{true, false} {
		e := start(t)
		e.write(t, "/w/old.txt", "old", agentapi.WriteOptions{Parents: true})
		e.write(t, "/w/sub/keep", "kept", agentapi.WriteOptions{Parents: true})
		e.write(t, "/outside", "untouched", agentapi.WriteOptions{})
		os.Symlink("../outside", filepath.Join(e.root, "w/link"))
		members := []member{
			{tar.TypeReg, "old.txt", "new", "", 0o600}, {tar.TypeReg, "link", "a file now", "", 0o644},
			{tar.TypeDir, "sub/", "", "", 0o700}, {tar.TypeReg, "sub/added", "more", "", 0o644},
		}
		archive := zipOf(t, members...)
		if zipped {
			archive = tarOf(t, true, members...)
		}
		if err := e.unpack(t, "/w", archive, ""); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{"/w/old.txt": "new", "/w/link": "a file now", "/w/sub/keep": "kept", "/w/sub/added": "more", "/outside": "untouched"} {
			if got := e.read(t, path, 0, -1); got != want {
				t.Errorf("%s = %q, want %q", path, got, want)
			}
		}
		if info, _ := e.Stat(t.Context(), "/w/sub"); info.Mode != 0o700 {
			t.Errorf("mode of the directory = %o", info.Mode)
		}
	}
}

func TestUnpackingHardLinks(t *testing.T) {
	e := start(t)
	archive := tarOf(t, false, member{tar.TypeReg, "a/file", "shared", "", 0o644}, member{tar.TypeLink, "b/twin", "", "a/file", 0})
	if err := e.unpack(t, "/w", archive, ""); err != nil {
		t.Fatal(err)
	}
	one, err1 := os.Stat(filepath.Join(e.root, "w/a/file"))
	two, err2 := os.Stat(filepath.Join(e.root, "w/b/twin"))
	if err1 != nil || err2 != nil || !os.SameFile(one, two) {
		t.Errorf("the link is none: %v, %v", err1, err2)
	}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	file := func(name string) member { return member{tar.TypeReg, name, "evil", "", 0o644} }
	link := func(name, target string) member { return member{tar.TypeSymlink, name, "", target, 0o777} }
	both := map[string][]member{
		"absolute":           {file("/evil")},
		"parent":             {file("../evil")},
		"parent-inside":      {file("a/../../evil")},
		"dots-that-stay":     {file("a/../evil")},
		"absolute-directory": {{tar.TypeDir, "/evil/", "", "", 0o755}},
		"link-absolute":      {link("l", "/etc")},
		"link-out":           {link("l", "../evil")},
		"link-deeper-out":    {link("a/b/l", "../../../evil")},
		"link-then-file":     {link("l", ".."), file("l/evil")},
		"through-link":       {{tar.TypeDir, "d/", "", "", 0o755}, link("l", "d"), file("l/evil")},
		"chained-links":      {link("a/up", ".."), link("l", "a/up/..")},
		"link-by-link":       {{tar.TypeDir, "a/b/", "", "", 0o755}, link("d", "a/b"), link("d/l", "../x")},
		"device":             {{tar.TypeChar, "null", "", "", 0o666}},
		"pipe":               {{tar.TypeFifo, "pipe", "", "", 0o666}},
	}
	tars := map[string][]member{
		"hard-link-out":       {{tar.TypeLink, "l", "", "../secret", 0}},
		"hard-link-absolute":  {{tar.TypeLink, "l", "", "/secret", 0}},
		"hard-link-missing":   {{tar.TypeLink, "l", "", "nothing", 0}},
		"hard-link-to-link":   {link("a/b/l", "../.."), {tar.TypeLink, "x", "", "a/b/l", 0}},
		"hard-link-to-itself": {file("l"), {tar.TypeLink, "l", "", "./l", 0}},
		"block-device":        {{tar.TypeBlock, "sda", "", "", 0o666}},
		"unknown-type":        {{'Q', "q", "", "", 0o644}},
		"existing-link":       {file("out/evil")},
	}
	check := func(name string, archive []byte) {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			e.write(t, "/secret", "secret", agentapi.WriteOptions{})
			os.Mkdir(filepath.Join(e.root, "w"), 0o755)
			os.Symlink("..", filepath.Join(e.root, "w/out"))
			var refused *agentapi.Error
			err := e.unpack(t, "/w", archive, "")
			if !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
				t.Errorf("UnpackArchive() = %v, want %s", err, agentapi.CodeInvalid)
			}
			entries, _ := os.ReadDir(e.root)
			if len(entries) != 2 || e.read(t, "/secret", 0, -1) != "secret" {
				t.Errorf("outside of the directory there are %v", entries)
			}
			for _, line := range snapshot(t, filepath.Join(e.root, "w")) {
				if strings.Contains(line, ".modbox-") {
					t.Errorf("left over: %s", line)
				}
			}
		})
	}
	for name, members := range both {
		check("tar/"+name, tarOf(t, true, members...))
		check("zip/"+name, zipOf(t, members...))
		tars[name] = members
	}
	for name, members := range tars {
		check("plain/"+name, tarOf(t, false, members...))
	}
}

func TestUnpackingMayKeepLinks(t *testing.T) {
	members := []member{
		{tar.TypeSymlink, "bin/python", "", "/usr/bin/python3", 0o777}, {tar.TypeSymlink, "up", "", "../..", 0o777}, {tar.TypeReg, "f", "x", "", 0o644},
	}
	through := append(members, member{tar.TypeReg, "up/evil", "x", "", 0o644})
	for name, pack := range map[string]func(...member) []byte{
		"tar": func(m ...member) []byte { return tarOf(t, false, m...) },
		"zip": func(m ...member) []byte { return zipOf(t, m...) },
	} {
		e := start(t)
		opts := agentapi.ArchiveOptions{KeepLinks: true}
		if err := e.UnpackArchive(t.Context(), "/w/in", bytes.NewReader(pack(members...)), opts); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for link, want := range map[string]string{"bin/python": "/usr/bin/python3", "up": "../.."} {
			if got, err := os.Readlink(filepath.Join(e.root, "w/in", link)); got != want || err != nil {
				t.Errorf("%s: %s leads to %q, %v, want %q", name, link, got, err, want)
			}
		}
		var refused *agentapi.Error
		err := e.UnpackArchive(t.Context(), "/w/in", bytes.NewReader(pack(through...)), opts)
		if !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
			t.Errorf("%s: writing through a link = %v, want %s", name, err, agentapi.CodeInvalid)
		}
		if entries, _ := os.ReadDir(e.root); len(entries) != 1 {
			t.Errorf("%s: outside of the directory there are %v", name, entries)
		}
	}
}

func TestDamagedArchivesAreRefused(t *testing.T) {
	content := make([]byte, 100<<10)
	rand.NewChaCha8([32]byte{3}).Read(content)
	whole := map[agentapi.Format][]byte{
		agentapi.FormatTarGzip: tarOf(t, true, member{tar.TypeReg, "f", string(content), "", 0o644}),
		agentapi.FormatZip:     zipOf(t, member{tar.TypeReg, "f", string(content), "", 0o644}),
		agentapi.FormatTar:     tarOf(t, false, member{tar.TypeReg, "f", string(content), "", 0o644}),
	}
	e := start(t)
	for format, archive := range whole {
		flipped := bytes.Clone(archive)
		flipped[len(flipped)/2] ^= 0x55
		bad := map[string][]byte{"cut": archive[:len(archive)/2], "empty": nil, "noise": content}
		if format != agentapi.FormatTar { // tar has no checksums of content
			bad["flipped"] = flipped
		}
		for name, data := range bad {
			for _, told := range []agentapi.Format{"", format} {
				var refused *agentapi.Error
				if err := e.unpack(t, "/w", data, told); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
					t.Errorf("%s %s as %q = %v, want %s", name, format, told, err, agentapi.CodeInvalid)
				}
				// The checksum of a tar.gz is at its end, after the file.
				if left := snapshot(t, filepath.Join(e.root, "w")); len(left) != 0 && (name != "flipped" || format != agentapi.FormatTarGzip) {
					t.Errorf("%s %s: left over: %.80v", name, format, left)
				}
				os.RemoveAll(filepath.Join(e.root, "w"))
			}
		}
	}
	var refused *agentapi.Error
	if err := e.unpack(t, "/w", content, "rar"); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
		t.Errorf("an unknown format = %v", err)
	}
}

func TestBombsAreRefused(t *testing.T) {
	const size = 192 << 20
	var gz, zipped bytes.Buffer
	z, _ := gzip.NewWriterLevel(&gz, gzip.BestCompression)
	tw := tar.NewWriter(z)
	tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: size, Mode: 0o644})
	io.CopyN(tw, zeroReader{}, size)
	tw.Close()
	z.Close()
	zw := zip.NewWriter(&zipped)
	w, _ := zw.Create("zeros")
	io.CopyN(w, zeroReader{}, size)
	zw.Close()
	lying := bytes.Clone(zipped.Bytes())
	at := bytes.LastIndex(lying, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(lying[at+24:], 1<<20) // claims to be small
	holes := sparse(t, 1<<40)

	for name, archive := range map[string][]byte{"tar.gz": gz.Bytes(), "zip": zipped.Bytes(), "zip-that-lies": lying, "holes": holes} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			var refused *agentapi.Error
			if err := e.unpack(t, "/w", archive, ""); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
				t.Errorf("UnpackArchive() of %d bytes = %v, want %s", len(archive), err, agentapi.CodeInvalid)
			}
			if left := snapshot(t, filepath.Join(e.root, "w")); len(left) != 0 {
				t.Errorf("left over: %.80v", left)
			}
		})
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// sparse returns a tar of one file that consists of a hole, in the old GNU format.
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	var h [512]byte
	copy(h[0:], "holes")
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	copy(h[124:], "00000000000\x00")
	copy(h[136:], "00000000000\x00")
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	big := func(b []byte, n int64) {
		b[0] = 0x80
		binary.BigEndian.PutUint64(b[4:], uint64(n))
	}
	big(h[386:398], size) // a piece of zero bytes at the end
	copy(h[398:], "00000000000\x00")
	big(h[483:495], size)
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	archive := append(h[:], make([]byte, 1024)...)
	if got, err := tar.NewReader(bytes.NewReader(archive)).Next(); err != nil || got.Size != size {
		t.Fatalf("the archive of the test is none: %+v, %v", got, err)
	}
	return archive
}

func TestUnpackingStopsWithItsClient(t *testing.T) {
	for _, format := range formats {
		e := start(t)
		whole := tarOf(t, format == agentapi.FormatTarGzip, member{tar.TypeReg, "dir/file", strings.Repeat("0123456789", 1<<15), "", 0o644})
		broken := errors.New("the client's disk broke")
		r := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), failingReader{broken})
		if err := e.UnpackArchive(t.Context(), "/w", r, agentapi.ArchiveOptions{Format: format}); !errors.Is(err, broken) {
			t.Errorf("%s: UnpackArchive() = %v, want %v", format, err, broken)
		}
		eventually(t, "only directories are left of a broken "+string(format), func() bool {
			clean := true
			// Files may disappear during the walk: the test waits for that.
			filepath.WalkDir(filepath.Join(e.root, "w"), func(_ string, d fs.DirEntry, err error) error {
				clean = clean && (errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir())
				return nil
			})
			return clean
		})
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestPackingBeneathADirectory(t *testing.T) {
	e := start(t)
	e.write(t, "/secret", "s", agentapi.WriteOptions{})
	e.write(t, "/base/in/file", "inside", agentapi.WriteOptions{Parents: true})
	os.Symlink("..", filepath.Join(e.root, "base/out"))
	files := e.Beneath("/base")
	var refused *agentapi.Error
	for _, path := range []string{"out", "../base", "/base"} {
		if _, err := files.PackArchive(t.Context(), path, ""); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
			t.Errorf("PackArchive(%s) = %v, want %s", path, err, agentapi.CodeInvalid)
		}
		err := files.UnpackArchive(t.Context(), path, bytes.NewReader(zipOf(t)), agentapi.ArchiveOptions{})
		if !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
			t.Errorf("UnpackArchive(%s) = %v, want %s", path, err, agentapi.CodeInvalid)
		}
	}
	body, err := files.PackArchive(t.Context(), "in", "")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if err := files.UnpackArchive(t.Context(), "copy", body, agentapi.ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := e.read(t, "/base/copy/file", 0, -1); got != "inside" {
		t.Errorf("the copy holds %q", got)
	}
}
