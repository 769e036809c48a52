package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/oci"
)

// Layout is a directory with an OCI image layout. Its methods change no file in place, so that a
// crash leaves each file whole. The caller prevents that an image is removed while it is in use.
type Layout struct{ dir string }

// OpenLayout returns the layout in a directory, which it creates. The caller writes the index of a
// new layout before it reads images from it.
func OpenLayout(dir string) (Layout, error) {
	l := Layout{dir}
	return l, durable.MkdirAll(l.BlobsDir())
}

// Ref names the manifest of an image in a layout.
type Ref struct {
	Digest v1.Hash `json:"digest"`
	Size   int64   `json:"size"`
	// MediaType of the manifest; "" is OCI's.
	MediaType types.MediaType `json:"media_type,omitempty"`
}

// BlobsDir is the directory of the blobs, whose names are their digests in hexadecimal.
func (l Layout) BlobsDir() string { return filepath.Join(l.dir, "blobs", "sha256") }

// Blob returns the path of a blob.
func (l Layout) Blob(h v1.Hash) string { return filepath.Join(l.dir, "blobs", h.Algorithm, h.Hex) }

// Image returns the image with a manifest.
func (l Layout) Image(manifest v1.Hash) (v1.Image, error) {
	return layout.Path(l.dir).Image(manifest)
}

// Manifest returns a manifest. Its error wraps [fs.ErrNotExist] if there is none.
func (l Layout) Manifest(digest v1.Hash) (*v1.Manifest, error) {
	f, err := os.Open(l.Blob(digest))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return v1.ParseManifest(f)
}

// Add writes the blobs of an image to the disk. The index does not change.
func (l Layout) Add(img v1.Image) (Ref, error) {
	if err := layout.Path(l.dir).WriteImage(img); err != nil {
		return Ref{}, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return Ref{}, err
	}
	digest, err := img.Digest()
	if err != nil {
		return Ref{}, err
	}
	size, err := img.Size()
	if err != nil {
		return Ref{}, err
	}
	paths := []string{l.Blob(digest), l.Blob(manifest.Config.Digest)}
	for _, layer := range manifest.Layers {
		paths = append(paths, l.Blob(layer.Digest))
	}
	return Ref{Digest: digest, Size: size}, durable.Sync(append(paths, l.BlobsDir())...)
}

// AddFiles moves the configuration and the layers of an image from a working directory into the
// layout, see [oci.LayerFile], and writes its manifest. The caller has synced the files.
func (l Layout) AddFiles(img oci.Image, dir string) (Ref, error) {
	if err := os.Rename(oci.ConfigFile(dir), l.Blob(img.Manifest.Config.Digest)); err != nil {
		return Ref{}, err
	}
	for i, layer := range img.Manifest.Layers {
		if err := os.Rename(oci.LayerFile(dir, i), l.Blob(layer.Digest)); err != nil {
			return Ref{}, err
		}
	}
	digest, size, err := v1.SHA256(strings.NewReader(string(img.Raw)))
	if err != nil {
		return Ref{}, err
	}
	return Ref{Digest: digest, Size: size, MediaType: img.Manifest.MediaType}, durable.WriteFile(l.Blob(digest), img.Raw)
}

// AddLayers writes an image of the first layers of another, which are files in a working directory. It runs nothing.
// The caller has synced the files.
func (l Layout) AddLayers(img oci.Image, layers int, dir string) (Ref, error) {
	config := v1.ConfigFile{
		OS: img.Config.OS, Architecture: img.Config.Architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: img.Config.RootFS.DiffIDs[:layers]},
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: img.Manifest.Layers[:layers]}
	for i, layer := range manifest.Layers {
		if err := os.Link(oci.LayerFile(dir, i), l.Blob(layer.Digest)); err != nil && !errors.Is(err, fs.ErrExist) {
			return Ref{}, err
		}
	}
	digest, size, err := l.addJSON(config)
	if err != nil {
		return Ref{}, err
	}
	manifest.Config = v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: digest, Size: size}
	digest, size, err = l.addJSON(manifest)
	return Ref{Digest: digest, Size: size, MediaType: manifest.MediaType}, err
}

// addJSON writes a blob.
func (l Layout) addJSON(what any) (v1.Hash, int64, error) {
	data, err := json.Marshal(what)
	if err != nil {
		return v1.Hash{}, 0, fmt.Errorf("write OCI image: %w", err)
	}
	digest, size, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		return v1.Hash{}, 0, err
	}
	return digest, size, durable.WriteFile(l.Blob(digest), data)
}

// Entry is an image in the index of a layout.
type Entry struct {
	Ref
	Name string // "" for none
}

func (e Entry) descriptor() v1.Descriptor {
	platform := oci.Platform()
	d := v1.Descriptor{MediaType: cmp.Or(e.MediaType, types.OCIManifestSchema1), Digest: e.Digest, Size: e.Size, Platform: &platform}
	if e.Name != "" {
		d.Annotations = map[string]string{specs.AnnotationRefName: e.Name}
	}
	return d
}

// WriteIndex replaces the index of the layout.
func (l Layout) WriteIndex(entries []Entry) error {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	for _, e := range entries {
		index.Manifests = append(index.Manifests, e.descriptor())
	}
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("write layout index: %w", err)
	}
	version, err := json.Marshal(specs.ImageLayout{Version: specs.ImageLayoutVersion})
	if err != nil {
		return fmt.Errorf("write layout index: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(l.dir, specs.ImageLayoutFile), version); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(l.dir, specs.ImageIndexFile), data)
}

// Export writes an image as a tar of a layout that has only this image. The same image gives the
// same bytes.
func (l Layout) Export(ctx context.Context, e Entry, w io.Writer) error {
	img, err := l.Image(e.Digest)
	if err != nil {
		return err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	e.MediaType = manifest.MediaType
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{e.descriptor()}})
	if err != nil {
		return err
	}
	version, err := json.Marshal(specs.ImageLayout{Version: specs.ImageLayoutVersion})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{specs.ImageLayoutFile, version}, {specs.ImageIndexFile, index}} {
		if err := writeEntry(tw, f.name, int64(len(f.data)), strings.NewReader(string(f.data))); err != nil {
			return err
		}
	}
	blobs := []v1.Hash{e.Digest, manifest.Config.Digest}
	for _, layer := range manifest.Layers {
		if !slices.Contains(blobs, layer.Digest) {
			blobs = append(blobs, layer.Digest)
		}
	}
	for _, digest := range blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.exportBlob(tw, digest); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (l Layout) exportBlob(tw *tar.Writer, digest v1.Hash) error {
	f, err := os.Open(l.Blob(digest))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return writeEntry(tw, filepath.Join("blobs", digest.Algorithm, digest.Hex), info.Size(), f)
}

func writeEntry(tw *tar.Writer, name string, size int64, content io.Reader) error {
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.Copy(tw, content)
	return err
}
