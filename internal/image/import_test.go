package image_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ocitarball "github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// twoLayers is an image whose second layer takes something from the first.
func twoLayers(t *testing.T) v1.Image {
	t.Helper()
	return imageOf(t, v1.Config{User: "app", Cmd: []string{"serve"}},
		gzipped(t, file("bin/app", "app", 0o4755), link(tarLink, "bin/other", "bin/app"), file("gone", "x", 0o644)), gzipped(t, file(".wh.gone", "", 0)))
}

var twoLayersFiles = map[string]string{"bin": "/", "bin/app": "app", "bin/other": "app"}

func TestImport(t *testing.T) {
	img := twoLayers(t)
	docker := func(tag string) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			file := filepath.Join(dir, "saved.tar")
			parsed, err := name.NewTag(tag)
			if err != nil {
				t.Fatal(err)
			}
			if err := ocitarball.WriteToFile(file, parsed, img); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	oci := func(what v1.ImageIndex, named string) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			p, err := layout.Write(filepath.Join(dir, "oci"), empty.Index)
			if err == nil && what != nil {
				err = p.AppendIndex(what, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": named}))
			} else if err == nil {
				err = p.AppendImage(img, layout.WithAnnotations(map[string]string{"io.containerd.image.name": named, "org.opencontainers.image.ref.name": "v1"}))
			}
			if err != nil {
				t.Fatal(err)
			}
			return string(p)
		}
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, v1.Config{}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	for _, c := range []struct {
		what string
		make func(*testing.T, string) string
		opts image.ImportOptions
		want string // the reference
	}{
		{"docker", docker("registry.test/team/app:v1"), image.ImportOptions{}, "registry.test/team/app:v1"},
		{"docker_renamed", docker("registry.test/team/app:v1"), image.ImportOptions{Name: "mine"}, "mine:latest"},
		{"layout", oci(nil, "ghcr.io/team/app:v1"), image.ImportOptions{}, "ghcr.io/team/app:v1"},
		{"index", oci(index, "team/app:v2"), image.ImportOptions{}, "team/app:v2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := pullStore(t, t.TempDir())
			images, err := s.Import(t.Context(), c.make(t, t.TempDir()), c.opts)
			if err != nil || len(images) != 1 || images[0].Ref() != c.want || images[0].Config.User != "app" {
				t.Fatalf("Import = %+v, %v, want %s", images, err, c.want)
			}
			_, path, err := s.Resolve(t.Context(), c.want)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(twoLayersFiles, contents(t, readEROFS(t, path))); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
		})
	}
}

func TestExportAndImport(t *testing.T) {
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	img, _ := pull(t, s, reg.Push(t, "team/app:v1", twoLayers(t)))
	over, err := s.Commit(t.Context(), image.CommitRequest{Base: img.Digest, Layer: bytes.NewReader(newFile(t)), Name: "team/committed", Tag: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []spec.Image{img, over.Image} {
		var first, second bytes.Buffer
		for _, w := range []io.Writer{&first, &second} {
			if err := s.Export(t.Context(), from.Ref(), w); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s was exported differently twice", from.Ref())
		}
		file := filepath.Join(t.TempDir(), "x.tar")
		if err := os.WriteFile(file, first.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		other := pullStore(t, dir)
		images, err := other.Import(t.Context(), file, image.ImportOptions{})
		if err != nil || len(images) != 1 || images[0].Ref() != from.Ref() || images[0].Digest != from.Digest {
			t.Errorf("Import of %s %s = %+v, %v, want the same", from.Ref(), from.Digest, images, err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) != 0 {
			t.Errorf("the import left %v, %v", left, err)
		}
	}
	if err := s.Export(t.Context(), "modbox/nosuch", io.Discard); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Export of an unknown image = %v, want not_found", err)
	}
}

func newFile(t *testing.T) []byte { return tarball(t, file("new", "n", 0o644)) }

func TestImportRefuses(t *testing.T) {
	write := func(data []byte) string {
		file := filepath.Join(t.TempDir(), "x.tar")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	s := pullStore(t, t.TempDir())
	ok, err := s.Commit(t.Context(), image.CommitRequest{Layer: bytes.NewReader(newFile(t)), Name: "fine"})
	if err != nil {
		t.Fatal(err)
	}
	var exported bytes.Buffer
	if err := s.Export(t.Context(), ok.Ref(), &exported); err != nil {
		t.Fatal(err)
	}
	var damaged bytes.Buffer // the same with another byte at the end of each blob
	tw := tar.NewWriter(&damaged)
	for tr := tar.NewReader(bytes.NewReader(exported.Bytes())); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if hdr.Name == "blobs/sha256/"+strings.TrimPrefix(ok.LayerDigest, "sha256:") {
			data[len(data)-1] ^= 1
		}
		if err := tw.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		file string
		opts image.ImportOptions
		want sandbox.Code
	}{
		"no_tar":        {write([]byte(strings.Repeat("x", 2000))), image.ImportOptions{}, sandbox.Invalid},
		"another_tar":   {write(tarball(t, file("a", "a", 0o644))), image.ImportOptions{}, sandbox.Invalid},
		"hostile_names": {write(tarball(t, file("../../oci-layout", "x", 0o644), file("blobs/sha256/../../../x", "x", 0o644))), image.ImportOptions{}, sandbox.Invalid},
		"damaged":       {write(damaged.Bytes()), image.ImportOptions{}, sandbox.Invalid},
		"built_in_name": {write(exported.Bytes()), image.ImportOptions{Name: "modbox/base"}, sandbox.Invalid},
		"recipe_name":   {write(exported.Bytes()), image.ImportOptions{Name: "test/main"}, sandbox.Invalid},
		"bad_name":      {write(exported.Bytes()), image.ImportOptions{Name: "Not A Name"}, sandbox.Invalid},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			_, err := pullStore(t, dir).Import(t.Context(), c.file, c.opts)
			wantCode(t, "Import", err, c.want)
			if left := append(tree(t, dir+"/images"), tree(t, dir+"/tmp")...); len(left) != 0 {
				t.Errorf("the refused import left %v", left)
			}
		})
	}
}
