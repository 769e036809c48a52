package image

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// LostImage is a root filesystem that no database knows.
type LostImage struct {
	Digest    string    `json:"digest"`
	SizeBytes int64     `json:"size_bytes"`
	At        time.Time `json:"at"` // when it was found
}

// Lost returns the root filesystems that are lost, the oldest first: Commit made them for
// a snapshot or a sandbox, the database does not need them, and it has no record that it
// gave them up. It may be the wrong database, so they stay for a while, within bounds. When
// a database needs a root filesystem again, that is lost no more.
func (s *Store) Lost(context.Context) ([]LostImage, error) {
	ix, err := s.loadIndex()
	if err != nil {
		return nil, err
	}
	var list []LostImage
	for i := range ix.Images {
		if r := &ix.Images[i]; !r.LostAt.IsZero() {
			list = append(list, LostImage{r.Digest, r.SizeBytes, r.LostAt})
		}
	}
	slices.SortFunc(list, func(a, b LostImage) int { return a.At.Compare(b.At) })
	return list, nil
}

// RemoveLost removes a root filesystem that is lost, by its digest. Errors: NotFound.
func (s *Store) RemoveLost(ctx context.Context, digest string) error {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	before := len(ix.Images)
	ix.Images = slices.DeleteFunc(ix.Images, func(r record) bool { return !r.LostAt.IsZero() && r.Digest == digest && !s.held(digest) })
	if len(ix.Images) == before {
		return sandbox.Errorf(sandbox.NotFound, "there is no lost root filesystem %.100q", digest)
	}
	_, err = s.sweep(ix)
	return err
}

// single reports whether the record is of what can not be made again: Commit made it of
// what a sandbox wrote, and it is in no cache.
func (r *record) single() bool { return r.Name == "" && r.Commit != nil && r.CacheKey == "" }

// keepLost marks in ix what is lost, and returns the digests of it that stay.
func (s *Store) keepLost(ctx context.Context, ix *index, needed []string, now time.Time) (map[string]bool, error) {
	if s.released == nil {
		return nil, nil
	}
	released, err := s.released(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out which images were given up: %w", err)
	}
	var lost []*record
	for i := range ix.Images {
		r := &ix.Images[i]
		switch {
		case !r.single() || slices.Contains(needed, r.Digest) || slices.Contains(released, r.Digest):
			r.LostAt = time.Time{}
		case r.fresh():
		default:
			if r.LostAt.IsZero() {
				r.LostAt = now.UTC()
			}
			lost = append(lost, r)
		}
	}
	slices.SortStableFunc(lost, func(a, b *record) int { return b.LostAt.Compare(a.LostAt) })
	keep, total := map[string]bool{}, int64(0)
	for _, r := range lost { // the newest first
		total += r.SizeBytes
		if (s.lostAge == 0 || now.Sub(r.LostAt) < s.lostAge) && (s.lostBytes == 0 || total <= s.lostBytes) {
			keep[r.Digest] = true
		}
	}
	return keep, nil
}
