package image

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// What everybody may use and was made with a CacheKey, such as installed dependencies,
// is there once, and counts as left by builds for every workspace that has used it, until
// that one needs the room for something else. It goes when it counts for nobody any more.

// use notes that a workspace used the record at a time.
func (r *record) use(ws sandbox.WorkspaceID, at time.Time) {
	if ws == "" || !at.After(r.Users[ws]) {
		return
	}
	if r.Users == nil {
		r.Users = map[sandbox.WorkspaceID]time.Time{}
	}
	r.Users[ws] = at
}

// countsFor reports whether the record counts for a workspace.
func (r *record) countsFor(ws sandbox.WorkspaceID) bool {
	_, uses := r.Users[ws]
	return ws != "" && (r.Owner == ws || uses)
}

// payers are the workspaces for which the record counts.
func (r *record) payers() []sandbox.WorkspaceID {
	if r.Owner != "" {
		return []sandbox.WorkspaceID{r.Owner}
	}
	return slices.Collect(maps.Keys(r.Users))
}

// payer is whom a new record counts for; "" for nobody.
func (r *record) payer() sandbox.WorkspaceID {
	for _, ws := range r.payers() {
		return ws
	}
	return ""
}

// CachedFor is [Store.Cached] for a workspace, for which what it returns counts from
// then on, see [Store.Owned].
func (s *Store) CachedFor(ctx context.Context, user sandbox.WorkspaceID, key string, maxAge time.Duration) (sandbox.Image, string, error) {
	img, path, err := s.Cached(ctx, key, maxAge)
	if err != nil {
		return sandbox.Image{}, "", err
	}
	ix, err := s.loadIndex()
	if err != nil {
		return sandbox.Image{}, "", err
	}
	if rec := ix.byCacheKey(key); rec != nil && rec.Digest == img.Digest && time.Since(rec.Users[user]) < cacheTouch {
		return img, path, nil
	}
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return sandbox.Image{}, "", err
	}
	defer unlock()
	rec := ix.byCacheKey(key)
	if rec == nil || rec.Digest != img.Digest {
		return sandbox.Image{}, "", sandbox.Errorf(sandbox.NotFound, "what was made for this is gone")
	}
	rec.use(user, time.Now().UTC())
	return img, path, s.writeIndex(ix)
}

// leftBy returns the records that need not count for a workspace any more, in the order
// in which they should not. What others use, too, it can leave to them, also when it is
// in use; what it has alone is removable, or stays.
func (s *Store) leftBy(ix *index, owner sandbox.WorkspaceID, needed []string) []record {
	var list []record
	for _, r := range s.removable(ix, needed) {
		if r.countsFor(owner) && len(r.payers()) == 1 {
			list = append(list, r)
		}
	}
	for _, r := range ix.Images {
		if r.countsFor(owner) && len(r.payers()) > 1 && time.Since(r.Users[owner]) > usedEvery {
			list = append(list, r)
		}
	}
	last := func(r *record) time.Time {
		if at, shared := r.Users[owner]; shared {
			return at
		}
		return s.lastUse(r)
	}
	slices.SortStableFunc(list, func(a, b record) int { return last(&a).Compare(last(&b)) })
	return list
}

// leave has what is the same as a record not count for an owner, and removes it when it
// counts for nobody.
func (ix *index) leave(what *record, owner sandbox.WorkspaceID) {
	ix.Images = slices.DeleteFunc(ix.Images, func(r record) bool {
		if !r.same(what) {
			return false
		}
		delete(r.Users, owner)
		return len(r.Users) == 0
	})
}

// fairly returns what may be removed in the order in which it should: first what
// workspaces have left beyond an equal part of the room, one part being for what is
// nobody's. So nobody's dependencies, or builds, keep those of others out.
func (s *Store) fairly(ix *index, removable []record, maxBytes int64) ([]record, error) {
	left := map[sandbox.WorkspaceID]int64{}
	for i := range ix.Images {
		for _, ws := range ix.Images[i].payers() {
			if _, known := left[ws]; known {
				continue
			}
			have, err := s.ownedIn(ix, ws)
			if err != nil {
				return nil, err
			}
			left[ws] = have.left
		}
	}
	part := maxBytes / int64(len(left)+1)
	var beyond, rest []record
	for _, r := range removable {
		payers := r.payers()
		if len(payers) == 0 || slices.ContainsFunc(payers, func(ws sandbox.WorkspaceID) bool { return left[ws] <= part }) {
			rest = append(rest, r)
			continue
		}
		for _, ws := range payers {
			left[ws] -= r.SizeBytes + cmp.Or(r.Commit, &commitRecord{}).Layer.Size
		}
		beyond = append(beyond, r)
	}
	return append(beyond, rest...), nil
}
