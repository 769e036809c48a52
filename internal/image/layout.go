package image

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// writeImage adds an OCI image's blobs to the layout, on disk when it returns.
// The layout's index does not change.
func (s *Store) writeImage(img v1.Image) (blobRef, error) {
	if err := layout.Path(s.layoutDir()).WriteImage(img); err != nil {
		return blobRef{}, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return blobRef{}, err
	}
	digest, err := img.Digest()
	if err != nil {
		return blobRef{}, err
	}
	size, err := img.Size()
	if err != nil {
		return blobRef{}, err
	}
	hashes := []v1.Hash{digest, manifest.Config.Digest}
	for _, l := range manifest.Layers {
		hashes = append(hashes, l.Digest)
	}
	for _, h := range hashes {
		if err := syncPath(s.blobPath(h)); err != nil {
			return blobRef{}, err
		}
	}
	return blobRef{Digest: digest, Size: size}, syncPath(filepath.Dir(s.blobPath(digest)))
}

func (s *Store) layoutDir() string { return filepath.Join(s.dir, "layout") }

func (s *Store) blobPath(h v1.Hash) string {
	return filepath.Join(s.layoutDir(), "blobs", h.Algorithm, h.Hex)
}

// writeLayoutIndex writes the layout's index.json from ours. The library's own
// ways to change it overwrite the file in place, which a crash could cut short.
func (s *Store) writeLayoutIndex(ix *index) error {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	for _, rec := range ix.Images {
		d := v1.Descriptor{
			MediaType: cmp.Or(rec.Manifest.MediaType, types.OCIManifestSchema1), Digest: rec.Manifest.Digest, Size: rec.Manifest.Size,
			Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		}
		if rec.Current && rec.Owner == "" {
			d.Annotations = map[string]string{specs.AnnotationRefName: rec.ref()}
		}
		index.Manifests = append(index.Manifests, d)
	}
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("write layout index: %w", err)
	}
	version, err := json.Marshal(specs.ImageLayout{Version: specs.ImageLayoutVersion})
	if err != nil {
		return fmt.Errorf("write layout index: %w", err)
	}
	if err := replaceFile(filepath.Join(s.layoutDir(), specs.ImageLayoutFile), version); err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.layoutDir(), specs.ImageIndexFile), data)
}
