package image_test

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image/remote"

	"github.com/modbox/modbox/internal/image"
)

// loopback is the list of registries that the stores of tests may use.
var loopback = []string{"127.0.0.1"}

// gzipped makes a layer of entries as Docker does.
func gzipped(t *testing.T, entries ...entry) v1.Layer {
	t.Helper()
	return layerOf(t, tarball(t, entries...))
}

func layerOf(t *testing.T, tar []byte) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	if _, err := zw.Write(tar); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	diffID, _, err := v1.SHA256(bytes.NewReader(tar))
	if err != nil {
		t.Fatal(err)
	}
	return compressedLayer{static.NewLayer(buf.Bytes(), types.DockerLayer), diffID}
}

// compressedLayer is a blob with the digest of what it holds.
type compressedLayer struct {
	v1.Layer
	diffID v1.Hash
}

func (l compressedLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// imageOf makes an image of layers.
func imageOf(t *testing.T, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.Config(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

func digestOf(t *testing.T, l interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	h, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pullStore opens a store that may pull from the tests' registries.
func pullStore(t *testing.T, dir string) *image.Store {
	t.Helper()
	return stallStore(t, dir, time.Minute)
}

// stallStore is pullStore with how long registries may send nothing.
func stallStore(t *testing.T, dir string, stall time.Duration) *image.Store {
	t.Helper()
	s, err := image.Open(dir, recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback, StallTimeout: stall}, Bootstrapper: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
