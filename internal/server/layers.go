package server

import (
	"context"
	"io"
	"time"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// layers adapts an image store to the interfaces of lifecycle and prepare.
type layers struct{ images *image.Store }

var _ lifecycle.Layers = layers{}

// Planned implements [lifecycle.Layers].
func (l layers) Planned(ctx context.Context, digest string) (spec.Image, error) {
	if l.images.Verifier().IsAway(digest) {
		return l.images.Lookup(ctx, digest)
	}
	img, _, err := l.images.Resolve(ctx, digest)
	return img, err
}

// Collect implements [lifecycle.Layers].
func (l layers) Collect(ctx context.Context, inUse func(context.Context) ([]string, error)) (int64, error) {
	return l.images.Removal().Prune(ctx, inUse)
}

// Hold implements [lifecycle.Layers].
func (l layers) Hold(ctx context.Context, digest string) (func(), error) {
	return l.images.Hold(ctx, digest)
}

// Commit implements [lifecycle.Layers].
func (l layers) Commit(ctx context.Context, base string, layer io.Reader) (prepare.Layered, error) {
	return l.commit(ctx, image.CommitRequest{Base: base, Layer: layer}, nil)
}

// Stack implements [lifecycle.Layers].
func (l layers) Stack(ctx context.Context, ws sandbox.WorkspaceID, base string, layer io.Reader) (prepare.Layered, error) {
	return l.commit(ctx, image.CommitRequest{Base: base, Layer: layer, User: ws, Alone: true}, nil)
}

// CommitCached implements [lifecycle.Layers].
func (l layers) CommitCached(ctx context.Context, as prepare.CacheEntry, base string, layer io.Reader) (prepare.Layered, error) {
	return l.commit(ctx, image.CommitRequest{Base: base, Layer: layer, CacheKey: as.Key, User: as.Workspace, Alone: true}, as.CheckSpace)
}

// Cached implements [lifecycle.Layers].
func (l layers) Cached(ctx context.Context, ws sandbox.WorkspaceID, key string, maxAge time.Duration) (spec.Image, string, error) {
	if ws == "" {
		return l.images.Cached(ctx, key, maxAge)
	}
	return l.images.CachedFor(ctx, ws, key, maxAge)
}

func (l layers) commit(ctx context.Context, req image.CommitRequest, check image.Check) (prepare.Layered, error) {
	staged, err := l.images.Stage(ctx, req)
	if err != nil {
		return prepare.Layered{}, err
	}
	defer staged.Discard()
	done, err := staged.Publish(ctx, check)
	if err != nil {
		return prepare.Layered{}, err
	}
	return prepare.Layered{Digest: done.Digest, SizeBytes: done.OwnBytes, LayerBytes: done.LayerBytes, FileCount: done.FileCount, Below: done.Counted}, nil
}

// Open implements [lifecycle.Layers].
func (l layers) Open(ctx context.Context, digest string) (snapshot.Rootfs, error) {
	return l.images.OpenRootfs(ctx, digest)
}

// Files implements [lifecycle.Layers].
func (l layers) Files(ctx context.Context, digest string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	r, err := l.images.OpenRootfs(ctx, digest)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	defer r.Close()
	return r.Files(ctx, q)
}

// Archive implements [lifecycle.Layers]: see [rootfs.Reader.Archive].
func (l layers) Archive(ctx context.Context, digest, path string, compress bool) (io.ReadCloser, error) {
	r, err := l.images.OpenRootfs(ctx, digest)
	if err != nil {
		return nil, err
	}
	archive, err := r.Archive(ctx, path, compress)
	if err != nil {
		r.Close()
		return nil, err
	}
	return archive, nil
}
