package archive_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/sandbox"
)

// exported returns a layout with a random image, and the tar to which it exports the image as a
// name.
func exported(t *testing.T, name string) (l archive.Layout, ref archive.Ref, file []byte) {
	t.Helper()
	img, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = archive.OpenLayout(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if ref, err = l.Add(img); err != nil {
		t.Fatal(err)
	}
	if err := l.WriteIndex([]archive.Entry{{Ref: ref}}); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := l.Export(t.Context(), archive.Entry{Ref: ref, Name: name}, &buf); err != nil {
		t.Fatal(err)
	}
	return l, ref, buf.Bytes()
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestExportAndRead: an exported image can be read, and moved into another layout, with its name and
// its digest.
func TestExportAndRead(t *testing.T) {
	_, ref, data := exported(t, "team/app:v1")
	dir, work := t.TempDir(), t.TempDir()
	images, err := archive.Read(t.Context(), write(t, data), work)
	if err != nil || len(images) != 1 || images[0].Name != "team/app:v1" || images[0].Plain() {
		t.Fatalf("Read = %+v, %v, want team/app:v1 alone", images, err)
	}
	img, err := images[0].Unpack(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	other, err := archive.OpenLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := other.AddFiles(img, work)
	if err != nil || moved.Digest != ref.Digest || moved.Size != ref.Size {
		t.Errorf("AddFiles = %+v, %v, want %+v", moved, err, ref)
	}
	if m, err := other.Manifest(ref.Digest); err != nil || len(m.Layers) != 2 {
		t.Errorf("Manifest = %+v, %v, want two layers", m, err)
	}
}

// TestReadWritesOnlyLayouts: files with other names than the files of a layout are not unpacked.
func TestReadWritesOnlyLayouts(t *testing.T) {
	_, _, data := exported(t, "app")
	var hostile bytes.Buffer
	tw := tar.NewWriter(&hostile)
	for _, name := range []string{"../outside", "/outside", "blobs/sha256/../../outside", "blobs/sha256/short", "oci-layout/inside"} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []byte{tar.TypeSymlink, tar.TypeLink} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: kind, Name: "blobs/sha256/" + strings.Repeat("a", 64), Linkname: "/etc/passwd"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Flush(); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Read(t.Context(), write(t, append(hostile.Bytes(), data...)), work); err != nil {
		t.Fatalf("Read: %v", err)
	}
	var files []string
	err := filepath.WalkDir(filepath.Dir(filepath.Dir(work)), func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, filepath.Base(p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f != "oci-layout" && f != "index.json" && (len(f) != 64 || f == strings.Repeat("a", 64)) {
			t.Errorf("Read wrote %s", f)
		}
	}
	if len(files) != 6 { // the layout, its index, a manifest, a configuration and two layers
		t.Errorf("Read wrote %q, want the six files of the layout", files)
	}
}

// TestReadRefuses: files that are no images, and images that cannot run on this host.
func TestReadRefuses(t *testing.T) {
	img, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	foreign := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}})
	p, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendIndex(foreign); err != nil {
		t.Fatal(err)
	}
	l, ref, data := exported(t, "app")
	m, err := l.Manifest(ref.Digest)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := os.ReadFile(l.Blob(m.Layers[0].Digest))
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Replace(data, layer[:len(layer)/2], bytes.Repeat([]byte("x"), len(layer)/2), 1)
	for name, file := range map[string]string{
		"no_tar": write(t, bytes.Repeat([]byte("x"), 2000)), "empty_directory": t.TempDir(), "other_platform": string(p), "damaged": write(t, damaged),
	} {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir()
			images, err := archive.Read(t.Context(), file, work)
			if err == nil {
				_, err = images[0].Unpack(t.Context(), work)
			}
			if code := sandbox.CodeOf(err); code != sandbox.Invalid {
				t.Errorf("the error %v has code %q, want %q", err, code, sandbox.Invalid)
			}
			if name == "damaged" {
				if _, err := os.Stat(oci.LayerFile(work, 1)); err == nil {
					t.Error("the layers after the damaged layer were read")
				}
			}
		})
	}
}
