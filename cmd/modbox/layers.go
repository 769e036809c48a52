package main

import (
	"context"
	"io"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/lifecycle"
)

// layers is an image store as lifecycle wants it for what it makes of others.
type layers struct{ images *image.Store }

var _ lifecycle.Layers = layers{}

// Commit implements [lifecycle.Layers].
func (l layers) Commit(ctx context.Context, base string, layer io.Reader) (lifecycle.Layered, error) {
	done, err := l.images.Commit(ctx, image.CommitRequest{Base: base, Layer: layer})
	if err != nil {
		return lifecycle.Layered{}, err
	}
	return lifecycle.Layered{Digest: done.Digest, SizeBytes: done.SizeBytes, LayerBytes: done.LayerBytes, FileCount: done.FileCount}, nil
}
