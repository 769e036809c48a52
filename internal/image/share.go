package image

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// An image without an owner and with a CacheKey, such as installed dependencies, exists once, and
// counts as build cache for every workspace that has used it, until the workspace needs the space
// for something else. It is removed when it counts for no workspace any more.

// cachedFor is [Store.CachedFor].
func (c *cache) cachedFor(ctx context.Context, user sandbox.WorkspaceID, key string, maxAge time.Duration) (spec.Image, string, error) {
	img, path, err := c.cached(ctx, key, maxAge)
	if err != nil {
		return spec.Image{}, "", err
	}
	ix, err := c.index.Load()
	if err != nil {
		return spec.Image{}, "", err
	}
	if rec := ix.ByCacheKey(key); rec != nil && rec.Digest == img.Digest && time.Since(rec.Users[user]) < cacheTouch {
		return img, path, nil
	}
	ix, unlock, err := c.index.Lock(ctx)
	if err != nil {
		return spec.Image{}, "", err
	}
	defer unlock()
	rec := ix.ByCacheKey(key)
	if rec == nil || rec.Digest != img.Digest {
		return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "the cached image was removed")
	}
	rec.Use(user, time.Now().UTC())
	return img, path, c.index.Write(ix)
}

// leftBy returns the records of a workspace's build cache that need not count for it any more, in
// the order of their removal. The workspace can drop images that other workspaces also use, or that lie below images or snapshots
// of others, even while they are in use, unless it needs them itself; its other images are removable, or stay.
func (rm *Removal) leftBy(ix *index.Index, owner sandbox.WorkspaceID, u uses) []index.Record {
	var list []index.Record
	for _, r := range rm.removable(ix, u, owner) {
		if r.CountsFor(owner) && len(r.Payers()) == 1 {
			list = append(list, r)
		}
	}
	lower, needed := ix.Below(nil), ix.Needed(owner)
	for _, r := range ix.Images {
		if r.Owner == "" && r.CountsFor(owner) && (len(r.Payers()) > 1 || lower[r.Digest]) && !needed[r.Digest] && time.Since(r.Users[owner]) > usedEvery {
			list = append(list, r)
		}
	}
	last := func(r *index.Record) time.Time {
		if at, shared := r.Users[owner]; shared {
			return at
		}
		return rm.lastKnown(u, r)
	}
	slices.SortStableFunc(list, func(a, b index.Record) int { return last(&a).Compare(last(&b)) })
	return list
}

// fairly returns the removable records in the order of their removal: first the caches of
// workspaces beyond an equal part of maxBytes; images without an owner have a part of their own. So
// no workspace's cache displaces the caches of others.
func (rm *Removal) fairly(ix *index.Index, removable []index.Record, maxBytes int64) ([]index.Record, error) {
	left := map[sandbox.WorkspaceID]int64{}
	for i := range ix.Images {
		for _, ws := range ix.Images[i].Payers() {
			if _, known := left[ws]; known {
				continue
			}
			have, err := rm.sizes.In(ix, ws)
			if err != nil {
				return nil, err
			}
			left[ws] = have.Left
		}
	}
	part := maxBytes / int64(len(left)+1)
	var beyond, rest []index.Record
	for _, r := range removable {
		payers := r.Payers()
		if len(payers) == 0 || slices.ContainsFunc(payers, func(ws sandbox.WorkspaceID) bool { return left[ws] <= part }) {
			rest = append(rest, r)
			continue
		}
		for _, ws := range payers {
			left[ws] -= r.SizeBytes + cmp.Or(r.Commit, &index.Commit{}).Layer.Size
		}
		beyond = append(beyond, r)
	}
	return append(beyond, rest...), nil
}
