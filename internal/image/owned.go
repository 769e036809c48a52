package image

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// Owned returns the bytes that a workspace's builds take on disk: the images that have a
// name, and what was left beside them, which is cached layers, images that lost their
// names, and what it has by [Store.CachedFor], whoever else uses that. They are root
// filesystems, and the compressed layers that no image of others needs.
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
		} // else what it names was removed meanwhile
	}
}

// owned is what Owned returns.
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

// ownedCache is what Owned returned for an index.
type ownedCache struct {
	of *index.Index
	by map[sandbox.WorkspaceID]owned
}

// ownedIn returns what an index says that an owner has.
func (s *Store) ownedIn(ix *index.Index, owner sandbox.WorkspaceID) (owned, error) {
	mine := func(r index.Record) bool { return r.CountsFor(owner) }
	if !slices.ContainsFunc(ix.Images, mine) {
		return owned{}, nil
	}
	seen := map[string]bool{} // digests that are counted, or not the owner's
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

// layersKnown bounds what is remembered of manifests.
const layersKnown = 10_000

// layersOf returns the layers of a index.Record's OCI image.
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
	layers = slices.Clip(layers) // what is appended to it is not written into it
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.layers) >= layersKnown {
		clear(s.layers)
	}
	s.layers[r.Manifest.Digest] = layers
	return layers, nil
}

// manifestOf returns the manifest of a index.Record's OCI image.
func (s *Store) manifestOf(r *index.Record) (*v1.Manifest, error) {
	manifest, err := s.layout.Manifest(r.Manifest.Digest)
	if err != nil {
		return nil, fmt.Errorf("read OCI image of %s: %w", r.Ref(), err)
	}
	return manifest, nil
}

// TrimLeft is Trim for what counts as left by the builds of a workspace. What others use,
// too, stays and counts for them alone. It returns the bytes of it that stay, which are more
// than maxBytes only when the rest is in use or new.
func (s *Store) TrimLeft(ctx context.Context, owner sandbox.WorkspaceID, maxBytes int64) (left int64, err error) {
	return s.trimLeft(ctx, owner, maxBytes, false)
}

// trimLeft is TrimLeft; with whole it removes nothing unless that is enough.
func (s *Store) trimLeft(ctx context.Context, owner sandbox.WorkspaceID, maxBytes int64, whole bool) (left int64, err error) {
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

// MakeRoom removes what the builds of a workspace have left, what was not used for
// longest first, until add bytes more are free, and reports whether they are. When all
// of it that may go is too little, it stays.
func (s *Store) MakeRoom(ctx context.Context, owner sandbox.WorkspaceID, add int64) (bool, error) {
	_, before, err := s.Owned(owner)
	if err != nil || before < add || s.inUse == nil {
		return false, err
	}
	left, err := s.trimLeft(ctx, owner, before-add, true)
	return err == nil && left <= before-add, err
}
