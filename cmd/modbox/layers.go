package main

import (
	"context"
	"io"
	"time"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// layers is an image store as lifecycle wants it for what it makes of others.
type layers struct{ images *image.Store }

var _ lifecycle.Layers = layers{}

// Collect implements [lifecycle.Layers].
func (l layers) Collect(ctx context.Context, inUse func(context.Context) ([]string, error)) (int64, error) {
	return l.images.Prune(ctx, inUse)
}

// Commit implements [lifecycle.Layers].
func (l layers) Commit(ctx context.Context, base string, layer io.Reader) (lifecycle.Layered, error) {
	return l.commit(ctx, image.CommitRequest{Base: base, Layer: layer})
}

// CommitCached implements [lifecycle.Layers].
func (l layers) CommitCached(ctx context.Context, key, base string, layer io.Reader) (lifecycle.Layered, error) {
	return l.commit(ctx, image.CommitRequest{Base: base, Layer: layer, CacheKey: key})
}

// Cached implements [lifecycle.Layers].
func (l layers) Cached(ctx context.Context, key string, maxAge time.Duration) (sandbox.Image, string, error) {
	return l.images.Cached(ctx, key, maxAge)
}

func (l layers) commit(ctx context.Context, req image.CommitRequest) (lifecycle.Layered, error) {
	done, err := l.images.Commit(ctx, req)
	if err != nil {
		return lifecycle.Layered{}, err
	}
	return lifecycle.Layered{Digest: done.Digest, SizeBytes: done.SizeBytes, LayerBytes: done.LayerBytes, FileCount: done.FileCount}, nil
}
