package image

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// usedEvery is how long an image stays after its last use, even if the disk is full: a sandbox may be
// about to start from it. Files record the last use to half of that.
const usedEvery = 10 * time.Minute

// Hold protects an image from removal by any process until release or the end of this process. The
// release counts as a use. Errors: NotFound.
func (s *Store) Hold(ctx context.Context, digest string) (release func(), err error) {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if ix.ByDigest(digest) == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no image with the digest %.100q", digest)
	}
	end, err := s.leases.Hold(ctx, digest)
	if err != nil {
		return nil, err
	}
	return func() {
		if err := end(); err != nil {
			s.log.Warn("a used image may be removed early", "error", err)
		}
	}, nil
}

// lastUse returns the time of the last use of an image, or the time at which it was made if that
// is later.
func (s *Store) lastUse(r *index.Record) time.Time {
	if used := s.leases.Last(r.Digest); used.After(r.UpdatedAt) {
		return used
	}
	return r.UpdatedAt
}

// Trim removes images until the store has at most maxBytes: first images that workspaces have
// beyond their part, then the others, and built-in images last; of each kind least recently used
// first. It keeps the images that inUse returns (digests, and references that are being resolved),
// images in use, and images that were made or used within ten minutes, so the store may stay
// larger. Removed images can be pulled or built again. It returns the removed images and the bytes
// freed. It calls inUse without a lock, and returns its error before it removes anything.
func (s *Store) Trim(ctx context.Context, maxBytes int64, inUse func(context.Context) ([]string, error)) (removed []string, freed int64, err error) {
	if over, err := s.isOver(ctx, maxBytes); err != nil || !over {
		return nil, 0, err
	}
	u, ix, unlock, err := s.lockForRemoval(ctx, lists{inUse: inUse})
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	size, err := s.size(ix)
	if err != nil || size <= maxBytes {
		return nil, 0, err
	}
	victims, err := s.fairly(ix, s.removable(ix, u), maxBytes)
	if err != nil {
		return nil, 0, err
	}
	for _, victim := range victims {
		ix.Images = slices.DeleteFunc(ix.Images, func(r index.Record) bool { return r.Same(&victim) })
		removed = append(removed, cmp.Or(strings.Trim(victim.Ref(), ":"), victim.Digest))
		if size, err = s.size(ix); err != nil || size <= maxBytes {
			break
		}
	}
	if err != nil || len(removed) == 0 {
		return nil, 0, err
	}
	freed, err = s.sweep(ix)
	return removed, freed, err
}

// isOver reports whether the store has more than maxBytes.
func (s *Store) isOver(ctx context.Context, maxBytes int64) (bool, error) {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	size, err := s.size(ix)
	return size > maxBytes, err
}

// removable returns the records that may be removed, in the order of their removal.
func (s *Store) removable(ix *index.Index, u uses) []index.Record {
	var list []index.Record
	for i := range ix.Images {
		r := &ix.Images[i]
		// An image built from files of a user cannot be made again. Nor can the root filesystem of a
		// snapshot: Prune determines which of them may be removed.
		if r.Owner != "" && r.Current || s.released != nil && r.Single() || time.Since(s.lastUse(r)) < usedEvery || s.isNamed(r, u.needed) || s.isUsed(u, r.Digest) {
			continue
		}
		list = append(list, *r)
	}
	builtin := func(r index.Record) int {
		if r.Current && s.recipe(r.Ref()) != nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b index.Record) int {
		return cmp.Or(cmp.Compare(builtin(a), builtin(b)), s.lastUse(&a).Compare(s.lastUse(&b)))
	})
	return list
}

// size returns the bytes of everything that an index names.
func (s *Store) size(ix *index.Index) (int64, error) {
	blobs, err := s.liveBlobs(ix)
	if err != nil {
		return 0, err
	}
	var total int64
	seen := map[string]bool{}
	for _, r := range ix.Images {
		if !seen[r.Digest] {
			total += r.SizeBytes
		}
		seen[r.Digest] = true
	}
	for name := range blobs {
		if info, err := os.Stat(filepath.Join(s.layout.BlobsDir(), name)); err == nil {
			total += info.Size()
		}
	}
	return total, nil
}
