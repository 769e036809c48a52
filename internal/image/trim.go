package image

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// cacheMax bounds the entries of the build cache of a workspace: layers may be small, and each takes time.
const cacheMax = 2000

// TrimBuildCache is Trim for the build cache of a workspace, so that another entry has space in it. Images that other
// workspaces also use stay and count for these alone. It returns the bytes of the cache that stay, which are more than
// maxBytes only when the rest is in use or new. Errors: QuotaExceeded when so many entries are in use or new that
// there can be no other.
func (rm *Removal) TrimBuildCache(ctx context.Context, owner sandbox.WorkspaceID, maxBytes int64) (left int64, err error) {
	if left, err = rm.trimBuildCache(ctx, owner, maxBytes, false); err != nil {
		return 0, err
	}
	ix, err := rm.index.Load()
	if err == nil && ix.Cached(owner) >= cacheMax {
		err = sandbox.Errorf(sandbox.QuotaExceeded, "the build cache of the workspace has %d entries that are in use or new, and may have no more; try again later, when builds have ended", cacheMax)
	}
	return left, err
}

// trimBuildCache is TrimBuildCache without a limit of entries that are in use; with whole it removes nothing unless
// maxBytes can be reached, and does not count entries.
func (rm *Removal) trimBuildCache(ctx context.Context, owner sandbox.WorkspaceID, maxBytes int64, whole bool) (int64, error) {
	have, err := rm.sizes.Of(owner)
	if err != nil || rm.inUse == nil {
		return have.Left, err
	}
	fits := func(bytes int64, entries int) bool { return bytes <= maxBytes && (whole || entries < cacheMax) }
	if ix, err := rm.index.Load(); err != nil || fits(have.Left, ix.Cached(owner)) {
		return have.Left, err
	}
	u, ix, unlock, err := rm.lockForRemoval(ctx, lists{inUse: rm.inUse})
	if err != nil {
		return 0, err
	}
	defer unlock()
	left, err := rm.sizes.Left(ix, owner)
	if err != nil {
		return 0, err
	}
	before, removed := left.Bytes, false
	others := ix.Below(func(r *index.Record) bool { return !r.IsOf(owner) })
	isForOthers := func(digest string) bool { return others[digest] && ix.IsOwn(digest, owner) } // without the workspace's own
	for more := true; more && !fits(left.Bytes, left.Images); {
		more = false
		for _, victim := range rm.leftBy(ix, owner, u) {
			if fits(left.Bytes, left.Images) {
				break
			}
			if len(victim.Payers()) == 1 && rm.isUsed(u, victim.Digest) {
				continue // since it was listed
			}
			if err := left.Remove(&victim); err != nil {
				return 0, err
			}
			ix.Leave(&victim, owner)
			removed, more = true, true
			if others[victim.Digest] || slices.ContainsFunc(victim.Below, isForOthers) {
				if left, err = rm.sizes.Left(ix, owner); err != nil {
					return 0, err
				}
			}
			if len(victim.Below) > 0 {
				break // the layer below may be next
			}
		}
	}
	if !removed || whole && left.Bytes > maxBytes {
		return before, nil
	}
	_, err = rm.sweep(ix)
	return left.Bytes, err
}

// ImagesWithout returns the bytes of the named images of a workspace, as [Store.Owned] counts them, without the image of a
// name and tag.
func (rm *Removal) ImagesWithout(owner sandbox.WorkspaceID, name, tag string) (int64, error) {
	return rm.sizes.ImagesWithout(owner, name, tag)
}

// evictBuildCache is [Store.EvictBuildCache].
func (rm *Removal) evictBuildCache(ctx context.Context, owner sandbox.WorkspaceID, add int64) (bool, error) {
	have, err := rm.sizes.Of(owner)
	before := have.Left
	if err != nil || before < add || rm.inUse == nil {
		return false, err
	}
	left, err := rm.trimBuildCache(ctx, owner, before-add, true)
	return err == nil && left <= before-add, err
}

// Trim removes images until the store has at most maxBytes: first images that workspaces have
// beyond their part, then the others, and built-in images last; of each kind least recently used
// first. It keeps the images that inUse returns (digests, and references that are being resolved),
// images in use, and images that were made or used within ten minutes, so the store may stay
// larger. Removed images can be pulled or built again. It returns the removed images and the bytes
// freed. It calls inUse without a lock, and returns its error before it removes anything.
func (rm *Removal) Trim(ctx context.Context, maxBytes int64, inUse func(context.Context) ([]string, error)) (removed []string, freed int64, err error) {
	if over, err := rm.sizes.IsOver(ctx, maxBytes); err != nil || !over {
		return nil, 0, err
	}
	u, ix, unlock, err := rm.lockForRemoval(ctx, lists{inUse: inUse})
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	sum, err := rm.sizes.Sum(ix)
	for before := -1; err == nil && sum.Bytes > maxBytes && before < len(removed); {
		before = len(removed)
		victims, verr := rm.fairly(ix, rm.removable(ix, u, ""), maxBytes)
		if verr != nil {
			return nil, 0, verr
		}
		for _, victim := range victims {
			if rm.isUsed(u, victim.Digest) {
				continue // since it was listed
			}
			if err := sum.Remove(&victim); err != nil {
				return nil, 0, err
			}
			ix.Images = slices.DeleteFunc(ix.Images, func(r index.Record) bool { return r.Same(&victim) })
			removed = append(removed, cmp.Or(strings.Trim(victim.Ref(), ":"), victim.Digest))
			if sum.Bytes <= maxBytes || len(victim.Below) > 0 { // the layer below may be next
				break
			}
		}
	}
	if err != nil || len(removed) == 0 {
		return nil, 0, err
	}
	freed, err = rm.sweep(ix)
	return removed, freed, err
}

// removable returns the records that may be removed, in the order of their removal. The layers of the builds
// of a workspace, unless it is "", are removable soon after their last use.
func (rm *Removal) removable(ix *index.Index, u uses, builder sandbox.WorkspaceID) []index.Record {
	var list []index.Record
	lower, finished := ix.Below(nil), map[string]bool{} // files that stay, so that the removal of a layer frees nothing
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Owner != "" && r.Current {
			finished[r.File()] = true
		}
	}
	for i := range ix.Images {
		r := &ix.Images[i]
		if lower[r.Digest] || r.CacheKey != "" && finished[r.File()] {
			continue
		}
		// An image built from files of a user cannot be made again. Nor can the root filesystem of a
		// snapshot: Prune determines which of them may be removed.
		kept := usedEvery
		if builder != "" && r.Owner == builder && r.CacheKey != "" {
			kept = layerKept
		}
		if r.Owner != "" && r.Current || rm.released != nil && r.Single() || time.Since(rm.lastKnown(u, r)) < kept || rm.names.isNamed(r, u.needed) || rm.wasUsed(u, r.Digest) {
			continue
		}
		list = append(list, *r)
	}
	builtin := func(r index.Record) int {
		if r.Current && rm.names.recipe(r.Ref()) != nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b index.Record) int {
		return cmp.Or(cmp.Compare(builtin(a), builtin(b)), rm.lastKnown(u, &a).Compare(rm.lastKnown(u, &b)))
	})
	return list
}

// lastUse returns the time of the last use of an image, or the time at which it was made if that
// is later.
func (rm *Removal) lastUse(r *index.Record) time.Time {
	if used := rm.leases.Last(r.Digest); used.After(r.UpdatedAt) {
		return used
	}
	return r.UpdatedAt
}

// trim keeps the store within its bounds. It does not remove the image that was just added.
func (rm *Removal) trim(ctx context.Context) {
	if rm.maxDisk == 0 {
		return
	}
	removed, freed, err := rm.Trim(ctx, rm.maxDisk, rm.inUse)
	if len(removed) > 0 {
		rm.log.Info("removed images to save disk", "images", removed, "bytes", freed)
	}
	if err != nil && ctx.Err() == nil {
		rm.log.Warn("the disk used by images could not be bounded", "error", err)
	}
}
