package image

import (
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// LostImage is a root filesystem that no database knows.
type LostImage struct {
	Digest    string    `json:"digest"`
	SizeBytes int64     `json:"size_bytes"`
	At        time.Time `json:"at"` // when it was found
}

// Lost returns the lost root filesystems, oldest first: Commit made them for a snapshot or a
// sandbox, the database does not need them, and it has no record that it gave them up. It may be
// the wrong database, so they stay for a while, within bounds. A root filesystem that a database
// needs again is no longer lost.
func (rm *Removal) Lost(context.Context) ([]LostImage, error) {
	ix, err := rm.index.Load()
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

// RemoveLost removes a lost root filesystem by its digest. Errors: NotFound; Conflict, naming a layer that
// lies on it.
func (rm *Removal) RemoveLost(ctx context.Context, digest string) error {
	ix, unlock, err := rm.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	lost := func(r index.Record) bool { return !r.LostAt.IsZero() && r.Digest == digest && !rm.leases.InUse(digest) }
	if !slices.ContainsFunc(ix.Images, lost) {
		return sandbox.Errorf(sandbox.NotFound, "there is no lost root filesystem %.100q", digest)
	}
	if over := ix.Over(digest); over != nil {
		return sandbox.Errorf(sandbox.Conflict, "%s lies on the root filesystem %s; remove it first", over.Title(), digest)
	}
	ix.Images = slices.DeleteFunc(ix.Images, lost)
	_, err = rm.sweep(ix)
	return err
}

// keepLost marks the lost root filesystems in ix, and returns the digests that stay within
// the bounds, with the images that only they keep.
func (rm *Removal) keepLost(ix *index.Index, u uses, now time.Time) map[string]bool {
	if rm.released == nil {
		return nil
	}
	var lost []*index.Record
	stays := func(r *index.Record) bool {
		return r.Current || r.CacheKey != "" && !r.IsChain() || rm.isFresh(u, r) || slices.Contains(u.needed, r.Digest)
	}
	lower := ix.Below(stays)
	for i := range ix.Images {
		r := &ix.Images[i]
		switch {
		case !r.Single() || lower[r.Digest] || slices.Contains(u.needed, r.Digest) || slices.Contains(u.released, r.Digest):
			r.LostAt = time.Time{}
		case rm.isFresh(u, r):
		default:
			if r.LostAt.IsZero() {
				r.LostAt = now.UTC()
			}
			lost = append(lost, r)
		}
	}
	slices.SortStableFunc(lost, func(a, b *index.Record) int { return b.LostAt.Compare(a.LostAt) })
	keep, total, adds := map[string]bool{}, int64(0), ix.Beyond(stays)
	for _, r := range lost { // the newest first
		total += adds(r)
		if (rm.lostAge == 0 || now.Sub(r.LostAt) < rm.lostAge) && (rm.lostBytes == 0 || total <= rm.lostBytes) {
			keep[r.Digest] = true
		}
	}
	return keep
}
