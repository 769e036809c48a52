package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// sizes measures what images take on the disk.
type sizes struct {
	index  *index.Table
	layout archive.Layout

	mu     sync.Mutex
	owned  ownedCache             // guarded by mu
	layers map[v1.Hash][]blobSize // guarded by mu; of the OCI images with those manifests
}

// of is [Store.Owned].
func (z *sizes) of(owner sandbox.WorkspaceID) (images, left int64, err error) {
	for {
		ix, err := z.index.Load()
		if err != nil {
			return 0, 0, err
		}
		have, err := z.ownedNow(ix, owner)
		if err == nil {
			return have.images, have.left, nil
		}
		if now, lerr := z.index.Load(); lerr != nil || now == ix {
			return 0, 0, err
		} // otherwise the image was removed meanwhile
	}
}

// owned is the result of Owned.
type owned struct{ images, left int64 }

// ownedNow is ownedIn for the index that was loaded last.
func (z *sizes) ownedNow(ix *index.Index, owner sandbox.WorkspaceID) (have owned, err error) {
	z.mu.Lock()
	if z.owned.of != ix {
		z.owned.of, z.owned.by = ix, map[sandbox.WorkspaceID]owned{}
	}
	known, ok := z.owned.by[owner]
	z.mu.Unlock()
	if ok {
		return known, nil
	}
	if have, err = z.ownedIn(ix, owner); err != nil {
		return owned{}, err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.owned.of == ix {
		z.owned.by[owner] = have
	}
	return have, nil
}

// ownedCache is the result of Owned for an index.
type ownedCache struct {
	of *index.Index
	by map[sandbox.WorkspaceID]owned
}

// ownedIn returns the disk space of an owner according to an index.
func (z *sizes) ownedIn(ix *index.Index, owner sandbox.WorkspaceID) (owned, error) {
	mine := func(r index.Record) bool { return r.CountsFor(owner) }
	if !slices.ContainsFunc(ix.Images, mine) {
		return owned{}, nil
	}
	seen := map[string]bool{} // digests that are counted, or belong to others
	count := func(count func(*index.Record) bool) (n int64, err error) {
		for i := range ix.Images {
			r := &ix.Images[i]
			if !count(r) {
				continue
			}
			layers, err := z.layersOf(r)
			if err != nil {
				return 0, err
			}
			for _, below := range ix.Uncounted(r) {
				layers = append(layers, blobSize{"below " + below.Digest, below.SizeBytes})
			}
			for _, b := range append(layers, blobSize{r.Digest, r.SizeBytes}) {
				if !seen[b.digest] {
					n += b.size
				}
				seen[b.digest] = true
			}
		}
		return n, nil
	}
	if _, err := count(func(r *index.Record) bool { return r.Owner == "" && !r.CountsFor(owner) }); err != nil {
		return owned{}, err
	}
	images, err := count(func(r *index.Record) bool { return r.Owner == owner && r.Current })
	if err != nil {
		return owned{}, err
	}
	left, err := count(func(r *index.Record) bool { return r.CountsFor(owner) && !r.Current })
	return owned{images, left}, err
}

// blobSize is a blob, or a root filesystem, with its size.
type blobSize struct {
	digest string
	size   int64
}

// layersKnown bounds the manifests in memory.
const layersKnown = 10_000

// layersOf returns the layers of a record's OCI image.
func (z *sizes) layersOf(r *index.Record) ([]blobSize, error) {
	z.mu.Lock()
	layers, known := z.layers[r.Manifest.Digest]
	z.mu.Unlock()
	if known {
		return layers, nil
	}
	manifest, err := z.manifestOf(r)
	if err != nil {
		return nil, err
	}
	for _, l := range manifest.Layers {
		layers = append(layers, blobSize{l.Digest.String(), l.Size})
	}
	layers = slices.Clip(layers) // so that append copies it
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.layers) >= layersKnown {
		clear(z.layers)
	}
	z.layers[r.Manifest.Digest] = layers
	return layers, nil
}

// manifestOf returns the manifest of a record's OCI image.
func (z *sizes) manifestOf(r *index.Record) (*v1.Manifest, error) {
	manifest, err := z.layout.Manifest(r.Manifest.Digest)
	if err != nil {
		return nil, fmt.Errorf("read OCI image of %s: %w", r.Ref(), err)
	}
	return manifest, nil
}

// isOver reports whether the store has more than maxBytes.
func (z *sizes) isOver(ctx context.Context, maxBytes int64) (bool, error) {
	ix, unlock, err := z.index.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	size, err := z.size(ix)
	return size > maxBytes, err
}

// size returns the bytes of everything that an index names.
func (z *sizes) size(ix *index.Index) (int64, error) {
	blobs, err := z.liveBlobs(ix)
	if err != nil {
		return 0, err
	}
	var total int64
	seen := map[string]bool{}
	for _, r := range ix.Images {
		if !seen[r.Digest] {
			total += r.SizeBytes
		}
		seen[r.Digest] = true
	}
	for name := range blobs {
		if info, err := os.Stat(filepath.Join(z.layout.BlobsDir(), name)); err == nil {
			total += info.Size()
		}
	}
	return total, nil
}

// liveBlobs returns the names of the layout's blobs that the index needs.
func (z *sizes) liveBlobs(ix *index.Index) (map[string]bool, error) {
	live := map[string]bool{}
	for _, rec := range ix.Images {
		manifest, err := z.manifestOf(&rec)
		if err != nil {
			return nil, err
		}
		live[rec.Manifest.Digest.Hex], live[manifest.Config.Digest.Hex] = true, true
		for _, l := range manifest.Layers {
			live[l.Digest.Hex] = true
		}
	}
	return live, nil
}
