package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lease"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// cacheGrace is the time after its last use for which an image with a CacheKey stays.
	cacheGrace = 14 * 24 * time.Hour
	// cacheTouch is the precision of that time: writing it for each use would make uses slow.
	cacheTouch = 6 * time.Hour
)

// cache finds images by the key of what they were made from.
type cache struct {
	index    *index.Table
	names    *names
	files    *files
	verifier *verify.Verifier
	leases   *lease.Leases
}

// cached is [Store.Cached].
func (c *cache) cached(ctx context.Context, key string, maxAge time.Duration) (spec.Image, string, error) {
	none := sandbox.Errorf(sandbox.NotFound, "nothing was made for this yet")
	ix, err := c.index.Load()
	if err != nil {
		return spec.Image{}, "", err
	}
	rec := ix.ByCacheKey(key)
	if rec == nil || maxAge > 0 && time.Since(rec.CreatedAt) > maxAge || c.verifier.Verify(ctx, rec) != nil {
		return spec.Image{}, "", none
	}
	if time.Since(rec.UpdatedAt) > cacheTouch {
		if err := c.touchCached(ctx, key); err != nil {
			return spec.Image{}, "", err
		}
	}
	if err := c.leases.Note(rec.Digest); err != nil {
		return spec.Image{}, "", err
	}
	return c.names.imageOf(rec), c.files.erofsPath(rec.Digest), nil
}

// touchCached marks the image with the key as used.
func (c *cache) touchCached(ctx context.Context, key string) error {
	ix, unlock, err := c.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec := ix.ByCacheKey(key)
	if rec == nil {
		return sandbox.Errorf(sandbox.NotFound, "the cached image was removed")
	}
	rec.FileTime, rec.UpdatedAt = rec.ModTime(), time.Now().UTC()
	return c.index.Write(ix)
}
