package image

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// OpenRootfs opens the root filesystem with a digest, which the caller closes. Errors: NotFound;
// Unavailable for a damaged file.
func (s *Store) OpenRootfs(ctx context.Context, digest string) (*rootfs.Reader, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	rec := ix.ByDigest(digest)
	if rec == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no root filesystem with the digest %.100q", digest)
	}
	if err := s.verifier.Verify(ctx, rec); err != nil {
		return nil, err
	}
	r, err := rootfs.Open(s.files.erofsPath(rec.Digest))
	if err != nil {
		return nil, fmt.Errorf("open root filesystem %s: %w", digest, err)
	}
	return r, nil
}

// Layers returns the layers of an image, the lowest first, and the image among others whose layers are the
// most of its first layers; nil for none. They are images as [Store.List] returns them. An image that is not
// built has no layers. Errors: NotFound.
func (s *Store) Layers(img spec.Image, others []spec.Image) ([]spec.Layer, *spec.Image, error) {
	ix, err := s.index.Load()
	if err != nil || img.Digest == "" {
		return nil, nil, err
	}
	rec := ix.Entry(img) // an image of another workspace may have the same digest, and another history
	if rec == nil {
		return nil, nil, sandbox.Errorf(sandbox.NotFound, "the image %s was removed", img.Ref())
	}
	manifests := make([]v1.Hash, len(others))
	for i := range others {
		if others[i].Digest == "" {
			continue // it is not built
		}
		if other := ix.Entry(others[i]); other != nil {
			manifests[i] = other.Manifest.Digest
		}
	}
	layers, base, err := s.layout.History(rec.Manifest.Digest, manifests)
	if err != nil || base < 0 {
		return layers, nil, err
	}
	return layers, &others[base], nil
}

// OpenFiles returns the files of the root filesystem with a digest; "" is an empty root filesystem.
// Their memory counts for a workspace. Errors: NotFound; Unavailable for a damaged file, and when
// other images use the memory; TooLarge.
func (s *Store) OpenFiles(ctx context.Context, owner sandbox.WorkspaceID, digest string) (*rootfs.Files, error) {
	rec, err := s.committer.commitBase(ctx, digest)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return s.scratch.Files(ctx, owner, "")
	}
	return s.scratch.Files(ctx, owner, s.files.erofsPath(rec.Digest))
}

// Scratch returns the memory and directory for work on root filesystems.
func (s *Store) Scratch() *rootfs.Scratch { return s.scratch }
