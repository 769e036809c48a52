package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// cacheGrace is how long what was made with a CacheKey is kept since it was last
	// asked for.
	cacheGrace = 14 * 24 * time.Hour
	// cacheTouch is how exactly that time is known: writing it for each use would
	// make uses slow.
	cacheTouch = 6 * time.Hour
)

// Cached returns the newest image that Commit made with the key and the path of
// its root filesystem, and notes that it is in use. An image that was made more
// than maxAge ago, unless that is 0, or whose file is damaged does not count.
// Errors: NotFound.
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

// touchCached notes that what has the key is in use.
func (s *Store) touchCached(ctx context.Context, key string) error {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec := ix.ByCacheKey(key)
	if rec == nil {
		return sandbox.Errorf(sandbox.NotFound, "what was made for this is gone")
	}
	rec.FileTime, rec.UpdatedAt = rec.ModTime(), time.Now().UTC()
	return s.index.Write(ix)
}
