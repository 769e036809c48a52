package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// Export writes the image that ref names, written as for [Store.Resolve], as a tar
// of an OCI image layout, which other tools and [Store.Import] read. The same
// image gives the same bytes. Errors: Invalid, NotFound, and w's.
func (s *Store) Export(ctx context.Context, ref string, w io.Writer) error {
	ix, err := s.loadIndex()
	if err != nil {
		return err
	}
	rec, err := s.find(ctx, ix, ref)
	if err != nil {
		return err
	}
	img, err := layout.Path(s.layoutDir()).Image(rec.Manifest.Digest)
	if err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	index, err := exportIndex(rec, manifest)
	if err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	version, err := json.Marshal(specs.ImageLayout{Version: specs.ImageLayoutVersion})
	if err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{specs.ImageLayoutFile, version}, {specs.ImageIndexFile, index}} {
		if err := exportFile(tw, f.name, int64(len(f.data)), strings.NewReader(string(f.data))); err != nil {
			return fmt.Errorf("export %s: %w", ref, err)
		}
	}
	blobs := []v1.Hash{rec.Manifest.Digest, manifest.Config.Digest}
	for _, l := range manifest.Layers {
		if !slices.Contains(blobs, l.Digest) {
			blobs = append(blobs, l.Digest)
		}
	}
	for _, digest := range blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.exportBlob(tw, digest); err != nil {
			return fmt.Errorf("export %s: %w", ref, err)
		}
	}
	return tw.Close()
}

// exportIndex returns an index of one image with its name.
func exportIndex(rec *record, manifest *v1.Manifest) ([]byte, error) {
	d := v1.Descriptor{
		MediaType: manifest.MediaType, Digest: rec.Manifest.Digest, Size: rec.Manifest.Size,
		Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
	}
	if rec.Name != "" {
		d.Annotations = map[string]string{specs.AnnotationRefName: rec.ref()}
	}
	return json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{d}})
}

func (s *Store) exportBlob(tw *tar.Writer, digest v1.Hash) error {
	f, err := os.Open(s.blobPath(digest))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return exportFile(tw, filepath.Join("blobs", digest.Algorithm, digest.Hex), info.Size(), f)
}

func exportFile(tw *tar.Writer, name string, size int64, content io.Reader) error {
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.Copy(tw, content)
	return err
}
