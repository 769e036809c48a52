package image

import (
	"context"
	"time"

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
func (s *Store) Cached(ctx context.Context, key string, maxAge time.Duration) (sandbox.Image, string, error) {
	none := sandbox.Errorf(sandbox.NotFound, "nothing was made for this yet")
	ix, err := s.loadIndex()
	if err != nil {
		return sandbox.Image{}, "", err
	}
	rec := ix.byCacheKey(key)
	if rec == nil || maxAge > 0 && time.Since(rec.CreatedAt) > maxAge || s.verify(ctx, rec) != nil {
		return sandbox.Image{}, "", none
	}
	if time.Since(rec.UpdatedAt) > cacheTouch {
		if err := s.touchCached(ctx, key); err != nil {
			return sandbox.Image{}, "", err
		}
	}
	if err := s.noteUse(rec.Digest); err != nil {
		return sandbox.Image{}, "", err
	}
	return s.imageOf(rec), s.erofsPath(rec.Digest), nil
}

// byCacheKey returns the newest record with the key, or nil.
func (ix *index) byCacheKey(key string) *record {
	for i := len(ix.Images) - 1; i >= 0; i-- {
		if r := &ix.Images[i]; key != "" && r.CacheKey == key {
			return r
		}
	}
	return nil
}

// touchCached notes that what has the key is in use.
func (s *Store) touchCached(ctx context.Context, key string) error {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec := ix.byCacheKey(key)
	if rec == nil {
		return sandbox.Errorf(sandbox.NotFound, "what was made for this is gone")
	}
	rec.FileTime, rec.UpdatedAt = rec.fileTime(), time.Now().UTC()
	return s.writeIndex(ix)
}
