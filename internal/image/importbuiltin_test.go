package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// offline is a bootstrapper of a machine that can build nothing.
func offline() *fake {
	return &fake{after: errors.New("this machine has no mmdebstrap")}
}

// exported builds an image and returns the file it is exported to.
func exported(t *testing.T, s *image.Store, ref string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "exported.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Export(t.Context(), ref, f); err != nil {
		t.Fatal(err)
	}
	return file
}

// bootstrapped returns the build of a recipe here.
func bootstrapped(t *testing.T) *fake {
	return &fake{tar: tarball(t, dir("bin", 0o755), file("bin/app", "app", 0o4755), dir("cache", 0o755), file("cache/x", "x", 0o644),
		dir("usr", 0o755), dir("usr/share", 0o755), dir("usr/share/modbox", 0o755),
		file("usr/share/modbox/packages.tsv", "debian\tbash\t5.2\tamd64\n", 0o644))}
}

func TestImportBuiltIn(t *testing.T) {
	from := open(t, t.TempDir(), bootstrapped(t))
	built := build(t, from, "test/main")
	archive := exported(t, from, "test/main")
	into := t.TempDir()
	bootstrap := offline()
	s := open(t, into, bootstrap)
	for range 2 { // again is as good
		images, err := s.Import(t.Context(), archive, image.ImportOptions{})
		if err != nil || len(images) != 1 {
			t.Fatalf("Import = %+v, %v, want one image", images, err)
		}
		want := built
		want.CreatedAt, want.UpdatedAt = images[0].CreatedAt, images[0].UpdatedAt
		if d := cmp.Diff(want, images[0]); d != "" {
			t.Errorf("imported image differs from the built one (-built +imported):\n%s", d)
		}
	}
	// It counts as built: nothing is made, and it is the default image.
	if got := build(t, s, "test/main"); got.Digest != built.Digest || bootstrap.calls.Load() != 0 {
		t.Errorf("Build after Import = %s after %d calls of the bootstrapper, want %s and none", got.Digest, bootstrap.calls.Load(), built.Digest)
	}
	if got, _, err := s.Resolve(t.Context(), ""); err != nil || got.Digest != built.Digest || !got.IsDefault {
		t.Errorf("Resolve of the default image = %+v, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Join(into, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("the import left %v, %v", left, err)
	}
}

func TestImportBuiltInRefuses(t *testing.T) {
	from := open(t, t.TempDir(), bootstrapped(t))
	build(t, from, "test/main")
	archive := exported(t, from, "test/main")
	changed := recipeFS()
	changed["main/setup.sh"].Data = []byte("something else\n")
	newer, err := image.Open(t.TempDir(), changed, image.Options{Bootstrapper: offline()})
	if err != nil {
		t.Fatal(err)
	}
	same := open(t, t.TempDir(), offline())
	for what, c := range map[string]struct {
		store *image.Store
		file  string
		opts  image.ImportOptions
		field string
	}{
		"other_recipe": {newer, archive, image.ImportOptions{}, "name"},
		"other_name":   {same, archive, image.ImportOptions{Name: "modbox/other"}, "name"},
		"damaged":      {same, damagedLayer(t, archive), image.ImportOptions{}, ""},
		"other_layer":  {same, otherLayer(t), image.ImportOptions{}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			images, err := c.store.Import(t.Context(), c.file, c.opts)
			wantCode(t, "Import", err, sandbox.Invalid)
			if len(images) != 0 || fieldOf(err) != c.field {
				t.Errorf("Import = %+v, field %q of %v, want none and field %q", images, fieldOf(err), err, c.field)
			}
			if list, err := c.store.List(t.Context()); err != nil {
				t.Error(err)
			} else {
				for _, img := range list {
					if img.Digest != "" {
						t.Errorf("%s is in the store", img.Ref())
					}
				}
			}
		})
	}
	// Under a name of its own it is an image as any other.
	images, err := newer.Import(t.Context(), archive, image.ImportOptions{Name: "old/main"})
	if err != nil || len(images) != 1 || images[0].Ref() != "old/main:latest" {
		t.Errorf("Import with another name = %+v, %v", images, err)
	}
}

// damagedLayer returns an archive with one byte of its largest blob changed.
func damagedLayer(t *testing.T, archive string) string {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	zstd := bytes.LastIndex(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) // begins the layer
	if zstd < 0 {
		t.Fatal("the archive has no layer")
	}
	data[zstd+20] ^= 1
	out := filepath.Join(t.TempDir(), "damaged.tar")
	if err := os.WriteFile(out, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

// otherLayer returns a layout whose image claims a recipe and promises another layer than it has.
func otherLayer(t *testing.T) string {
	t.Helper()
	hash := recipeOf(t, open(t, t.TempDir(), offline()), "test/main").Hash()
	img := imageOf(t, v1.Config{}, gzipped(t, file("evil", "evil", 0o4755)))
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.History = []v1.History{{CreatedBy: "modbox recipe " + hash}}
	config.RootFS.DiffIDs = []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
	dir := filepath.Join(t.TempDir(), "oci")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(claiming{img, raw}, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "test/main:latest"})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// claiming is an image with another configuration.
type claiming struct {
	v1.Image
	config []byte
}

func (c claiming) RawConfigFile() ([]byte, error) { return c.config, nil }

func (c claiming) ConfigName() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(c.config))
	return h, err
}

func (c claiming) Manifest() (*v1.Manifest, error) {
	m, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	m.Config.Size = int64(len(c.config))
	m.Config.Digest, err = c.ConfigName()
	return m, err
}

func (c claiming) RawManifest() ([]byte, error) {
	m, err := c.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

func (c claiming) Digest() (v1.Hash, error) {
	raw, err := c.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(bytes.NewReader(raw))
	return h, err
}
