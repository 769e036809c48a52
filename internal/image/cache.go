package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// cacheGrace is the time after its last use for which an image with a CacheKey stays.
	cacheGrace = 14 * 24 * time.Hour
	// cacheTouch is the precision of that time: writing it for each use would make uses slow.
	cacheTouch = 6 * time.Hour
)

// Cached returns the newest image that Commit made with the key and the path of its root
// filesystem, and marks it as used. It ignores images older than maxAge, unless that is 0, and
// damaged images. Errors: NotFound.
func (s *Store) Cached(ctx context.Context, key string, maxAge time.Duration) (spec.Image, string, error) {
	none := sandbox.Errorf(sandbox.NotFound, "nothing was made for this yet")
	ix, err := s.index.Load()
	if err != nil {
		return spec.Image{}, "", err
	}
	rec := ix.ByCacheKey(key)
	if rec == nil || maxAge > 0 && time.Since(rec.CreatedAt) > maxAge || s.verify(ctx, rec) != nil {
		return spec.Image{}, "", none
	}
	if time.Since(rec.UpdatedAt) > cacheTouch {
		if err := s.touchCached(ctx, key); err != nil {
			return spec.Image{}, "", err
		}
	}
	if err := s.leases.Note(rec.Digest); err != nil {
		return spec.Image{}, "", err
	}
	return s.imageOf(rec), s.erofsPath(rec.Digest), nil
}

// touchCached marks the image with the key as used.
func (s *Store) touchCached(ctx context.Context, key string) error {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec := ix.ByCacheKey(key)
	if rec == nil {
		return sandbox.Errorf(sandbox.NotFound, "the cached image was removed")
	}
	rec.FileTime, rec.UpdatedAt = rec.ModTime(), time.Now().UTC()
	return s.index.Write(ix)
}
