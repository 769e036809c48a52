package image

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// Owned returns the disk space of a workspace's builds: of the images with a name, and of the
// cache, which is cached layers, images that lost their names, and the images that
// [Store.CachedFor] returned to the workspace, even if other workspaces use them. It counts root
// filesystems, and the compressed layers that no image of other workspaces needs.
func (s *Store) Owned(owner sandbox.WorkspaceID) (images, left int64, err error) {
	for {
		ix, err := s.index.Load()
		if err != nil {
			return 0, 0, err
		}
		have, err := s.ownedNow(ix, owner)
		if err == nil {
			return have.images, have.left, nil
		}
		if now, lerr := s.index.Load(); lerr != nil || now == ix {
			return 0, 0, err
		} // otherwise the image was removed meanwhile
	}
}

// owned is the result of Owned.
type owned struct{ images, left int64 }

// ownedNow is ownedIn for the index that was loaded last.
func (s *Store) ownedNow(ix *index.Index, owner sandbox.WorkspaceID) (have owned, err error) {
	s.mu.Lock()
	if s.owned.of != ix {
		s.owned.of, s.owned.by = ix, map[sandbox.WorkspaceID]owned{}
	}
	known, ok := s.owned.by[owner]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	if have, err = s.ownedIn(ix, owner); err != nil {
		return owned{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned.of == ix {
		s.owned.by[owner] = have
	}
	return have, nil
}

// ownedCache is the result of Owned for an index.
type ownedCache struct {
	of *index.Index
	by map[sandbox.WorkspaceID]owned
}

// ownedIn returns the disk space of an owner according to an index.
func (s *Store) ownedIn(ix *index.Index, owner sandbox.WorkspaceID) (owned, error) {
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
			layers, err := s.layersOf(r)
			if err != nil {
				return 0, err
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
func (s *Store) layersOf(r *index.Record) ([]blobSize, error) {
	s.mu.Lock()
	layers, known := s.layers[r.Manifest.Digest]
	s.mu.Unlock()
	if known {
		return layers, nil
	}
	manifest, err := s.manifestOf(r)
	if err != nil {
		return nil, err
	}
	for _, l := range manifest.Layers {
		layers = append(layers, blobSize{l.Digest.String(), l.Size})
	}
	layers = slices.Clip(layers) // so that append copies it
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.layers) >= layersKnown {
		clear(s.layers)
	}
	s.layers[r.Manifest.Digest] = layers
	return layers, nil
}

// manifestOf returns the manifest of a record's OCI image.
func (s *Store) manifestOf(r *index.Record) (*v1.Manifest, error) {
	manifest, err := s.layout.Manifest(r.Manifest.Digest)
	if err != nil {
		return nil, fmt.Errorf("read OCI image of %s: %w", r.Ref(), err)
	}
	return manifest, nil
}

// TrimBuildCache is Trim for the build cache of a workspace. Images that other workspaces also use stay
// and count for these alone. It returns the bytes of the cache that stay, which are more than
// maxBytes only when the rest is in use or new.
func (s *Store) TrimBuildCache(ctx context.Context, owner sandbox.WorkspaceID, maxBytes int64) (left int64, err error) {
	return s.trimBuildCache(ctx, owner, maxBytes, false)
}

// trimBuildCache is TrimBuildCache; with whole it removes nothing unless that is enough.
func (s *Store) trimBuildCache(ctx context.Context, owner sandbox.WorkspaceID, maxBytes int64, whole bool) (left int64, err error) {
	if _, left, err = s.Owned(owner); err != nil || left <= maxBytes || s.inUse == nil {
		return left, err
	}
	u, ix, unlock, err := s.lockForRemoval(ctx, lists{inUse: s.inUse})
	if err != nil {
		return 0, err
	}
	defer unlock()
	have, err := s.ownedIn(ix, owner)
	if err != nil {
		return 0, err
	}
	before, removed := have.left, false
	for _, victim := range s.leftBy(ix, owner, u) {
		if have.left <= maxBytes {
			break
		}
		ix.Leave(&victim, owner)
		removed = true
		if have, err = s.ownedIn(ix, owner); err != nil {
			return 0, err
		}
	}
	if !removed || whole && have.left > maxBytes {
		return before, nil
	}
	_, err = s.sweep(ix)
	return have.left, err
}

// EvictBuildCache removes images of a workspace's build cache, least recently used first, until add bytes
// more are free, and reports whether they are. It removes nothing if the whole removable cache is
// too small.
func (s *Store) EvictBuildCache(ctx context.Context, owner sandbox.WorkspaceID, add int64) (bool, error) {
	_, before, err := s.Owned(owner)
	if err != nil || before < add || s.inUse == nil {
		return false, err
	}
	left, err := s.trimBuildCache(ctx, owner, before-add, true)
	return err == nil && left <= before-add, err
}
