package ocilayer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/ocilayer"
	"github.com/modbox/modbox/internal/sandbox"
)

// entry has the properties of a file in a tar that the tests check.
type entry struct {
	Name, Link string
	Type       byte
	Content    string
	Xattrs     map[string]string
}

func archive(t *testing.T, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, Linkname: e.Link, Typeflag: e.Type, Size: int64(len(e.Content)), Mode: 0o755, PAXRecords: e.Xattrs}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func list(t *testing.T, r io.Reader) []entry {
	t.Helper()
	var entries []entry
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{Name: h.Name, Link: h.Linkname, Type: h.Typeflag, Content: string(content), Xattrs: h.PAXRecords})
	}
}

func TestFromOverlay(t *testing.T) {
	in := archive(t,
		entry{Name: "./", Type: tar.TypeDir},
		entry{Name: "./etc/", Type: tar.TypeDir},
		entry{Name: "./etc/removed", Type: tar.TypeChar},
		entry{Name: "./etc/also", Type: tar.TypeLink, Link: "./etc/removed"},
		entry{Name: "./etc/file", Type: tar.TypeReg, Content: "content", Xattrs: map[string]string{
			"SCHILY.xattr.user.kept": "yes", "SCHILY.xattr.trusted.overlay.origin": "no", "SCHILY.xattr.system.posix_acl_access": "no",
		}},
		entry{Name: "./etc/link", Type: tar.TypeLink, Link: "./etc/file"},
		entry{Name: "./etc/symlink", Type: tar.TypeSymlink, Link: "./removed"},
		entry{Name: "./new/", Type: tar.TypeDir, Xattrs: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
		entry{Name: "./new/.wh.trap", Type: tar.TypeReg, Content: "x"},
		entry{Name: "./new/.wh.dir/", Type: tar.TypeDir},
		entry{Name: "./new/.wh.dir/file", Type: tar.TypeReg, Content: "x"},
		entry{Name: "./new/.wh.dir/below/", Type: tar.TypeDir},
		entry{Name: "./new/.wh.dir/below/file", Type: tar.TypeReg, Content: "x"},
		entry{Name: "./tmp/", Type: tar.TypeDir},
		entry{Name: "./tmp/file", Type: tar.TypeReg, Content: "x"},
		entry{Name: "./tmpfile", Type: tar.TypeReg, Content: "stays"},
		entry{Name: "./linked", Type: tar.TypeLink, Link: "./tmp/file"},
		entry{Name: "./pipe", Type: tar.TypeFifo},
	)
	var out bytes.Buffer
	if err := ocilayer.FromOverlay(&out, in, []string{"tmp", "proc"}); err != nil {
		t.Fatalf("FromOverlay() = %v", err)
	}
	want := []entry{
		{Name: "etc/", Type: tar.TypeDir},
		{Name: "etc/.wh.removed", Type: tar.TypeReg},
		{Name: "etc/.wh.also", Type: tar.TypeReg},
		{Name: "etc/file", Type: tar.TypeReg, Content: "content", Xattrs: map[string]string{"SCHILY.xattr.user.kept": "yes"}},
		{Name: "etc/link", Type: tar.TypeLink, Link: "etc/file"},
		{Name: "etc/symlink", Type: tar.TypeSymlink, Link: "./removed"},
		{Name: "new/", Type: tar.TypeDir},
		{Name: "new/.wh..wh..opq", Type: tar.TypeReg},
		{Name: "tmpfile", Type: tar.TypeReg, Content: "stays"},
		{Name: "pipe", Type: tar.TypeFifo},
	}
	got := list(t, &out)
	for i := range got {
		for key := range got[i].Xattrs {
			if key == "mtime" || key == "path" {
				delete(got[i].Xattrs, key)
			}
		}
		if len(got[i].Xattrs) == 0 {
			got[i].Xattrs = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the layer (-want +got):\n%s", diff)
	}
}

// A file whose first name in the tar is omitted keeps its other names.
func TestFromOverlayLinksToReservedNames(t *testing.T) {
	in := archive(t,
		entry{Name: "./.wh.first", Type: tar.TypeReg, Content: "content", Xattrs: map[string]string{"SCHILY.xattr.user.kept": "yes"}},
		entry{Name: "./.wh.second", Type: tar.TypeLink, Link: "./.wh.first"},
		entry{Name: "./a", Type: tar.TypeLink, Link: "./.wh.first"},
		entry{Name: "./b", Type: tar.TypeLink, Link: "./.wh.first"},
		entry{Name: "./.wh.dir/", Type: tar.TypeDir},
		entry{Name: "./.wh.dir/link", Type: tar.TypeSymlink, Link: "./nowhere"},
		entry{Name: "./.wh.dir/pipe", Type: tar.TypeFifo},
		entry{Name: "./c", Type: tar.TypeLink, Link: "./.wh.dir/link"},
		entry{Name: "./d", Type: tar.TypeLink, Link: "./.wh.dir/pipe"},
		entry{Name: "./.wh.gone", Type: tar.TypeChar},
		entry{Name: "./gone", Type: tar.TypeLink, Link: "./.wh.gone"},
		entry{Name: "./.wh.large", Type: tar.TypeReg, Content: strings.Repeat("x", 2<<20)},
		entry{Name: "./e", Type: tar.TypeReg, Content: "last"},
	)
	whole := bytes.Clone(in.Bytes())
	var out bytes.Buffer
	if err := ocilayer.FromOverlay(&out, in, nil); err != nil {
		t.Fatalf("FromOverlay() = %v", err)
	}
	want := []entry{
		{Name: "a", Type: tar.TypeReg, Content: "content"},
		{Name: "b", Type: tar.TypeLink, Link: "a"},
		{Name: "c", Type: tar.TypeSymlink, Link: "./nowhere"},
		{Name: "d", Type: tar.TypeFifo},
		{Name: ".wh.gone", Type: tar.TypeReg},
		{Name: "e", Type: tar.TypeReg, Content: "last"},
	}
	got := list(t, &out)
	if x := got[0].Xattrs["SCHILY.xattr.user.kept"]; x != "yes" {
		t.Errorf("the attribute of the file is %q", x)
	}
	for i := range got {
		got[i].Xattrs = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the layer (-want +got):\n%s", diff)
	}
	if err := ocilayer.NamesFromOverlay(io.Discard, bytes.NewReader(whole), nil); err != nil {
		t.Errorf("NamesFromOverlay() = %v", err)
	}

	refused := archive(t,
		entry{Name: "./.wh.large", Type: tar.TypeReg, Content: strings.Repeat("x", 2<<20)},
		entry{Name: "./a", Type: tar.TypeLink, Link: "./.wh.large"},
		entry{Name: "./b", Type: tar.TypeReg, Content: "last"},
	).Bytes()
	for name, convert := range map[string]func(io.Writer, io.Reader, []string) error{"FromOverlay": ocilayer.FromOverlay, "NamesFromOverlay": ocilayer.NamesFromOverlay} {
		out.Reset()
		err := convert(&out, bytes.NewReader(refused), nil)
		if sandbox.CodeOf(err) != sandbox.Unsupported || !errors.Is(err, driver.ErrOmitted) || !strings.Contains(err.Error(), ".wh.large") {
			t.Errorf("%s() of a large file = %v, want code unsupported and ErrOmitted", name, err)
		}
		if got := list(t, &out); len(got) != 1 || got[0].Name != "b" {
			t.Errorf("%s() of a large file kept %+v, want the rest", name, got)
		}
	}
}

func TestFromOverlayDamaged(t *testing.T) {
	whole := archive(t, entry{Name: "./a", Type: tar.TypeReg, Content: "content"}).Bytes()
	for _, data := range [][]byte{whole[:100], whole[:514], bytes.Repeat([]byte{0xff}, 2048)} {
		if err := ocilayer.FromOverlay(io.Discard, bytes.NewReader(data), nil); err == nil {
			t.Errorf("FromOverlay() of %d damaged bytes succeeded", len(data))
		}
	}
	var many []entry
	for i := range 2000 {
		many = append(many, entry{Name: string(rune('0'+i%10)) + string(rune(0x4e00+i)), Type: tar.TypeChar})
	}
	if err := ocilayer.FromOverlay(io.Discard, archive(t, many...), nil); err == nil {
		t.Error("FromOverlay() of a tar of many whiteouts succeeded")
	}
}

func FuzzFromOverlay(f *testing.F) {
	f.Add([]byte("not a tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if ocilayer.FromOverlay(&out, bytes.NewReader(data), []string{"tmp"}) == nil {
			list(t, &out) // the output is a tar
		}
	})
}
