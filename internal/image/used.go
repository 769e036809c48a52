package image

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// When images were used last is the time of an empty file in used/, named like
// the root filesystem. It is brought up to date at most every usedEvery, and what
// was used since is never removed to save disk: a sandbox may be about to start
// from it.
const usedEvery = 10 * time.Minute

func (s *Store) usedPath(digest string) string {
	return filepath.Join(s.dir, "used", strings.TrimPrefix(digest, "sha256:"))
}

// noteUse notes that an image is being used.
func (s *Store) noteUse(digest string) error {
	s.mu.Lock()
	recent := time.Since(s.noted[digest]) < usedEvery/2
	s.mu.Unlock()
	if recent {
		return nil
	}
	now := time.Now()
	f, err := os.Create(s.usedPath(digest))
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Chtimes(s.usedPath(digest), now, now)
	}
	if err != nil {
		return fmt.Errorf("note the use of an image: %w", err)
	}
	s.mu.Lock()
	s.noted[digest] = now
	s.mu.Unlock()
	return nil
}

// Hold keeps an image from being removed, by any process, until release is called or this
// process ends. Afterwards it counts as used a moment ago. Errors: NotFound.
func (s *Store) Hold(ctx context.Context, digest string) (release func(), err error) {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if ix.byDigest(digest) == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no image with the digest %.100q", digest)
	}
	l := flock.New(s.usedPath(digest))
	if _, err := l.TryRLockContext(ctx, lock.Retry); err != nil {
		return nil, fmt.Errorf("hold image %s: %w", digest, err)
	}
	return sync.OnceFunc(func() {
		if err := s.noteUse(digest); err != nil {
			s.log.Warn("a used image may be removed early", "error", err)
		}
		_ = l.Close() // the kernel releases it in any case
	}), nil
}

// held reports whether an image is being held. The caller holds the index's lock.
func (s *Store) held(digest string) bool {
	if _, err := os.Stat(s.usedPath(digest)); err != nil {
		return false
	}
	l := flock.New(s.usedPath(digest))
	free, err := l.TryLock()
	_ = l.Close()
	return !free || err != nil
}

// lastUse returns when an image was used last, or made when that was later.
func (s *Store) lastUse(r *record) time.Time {
	if info, err := os.Stat(s.usedPath(r.Digest)); err == nil && info.ModTime().After(r.UpdatedAt) {
		return info.ModTime()
	}
	return r.UpdatedAt
}

// Trim removes images, those whose last use is the longest ago first and built-in
// ones last, though what workspaces have left beyond their part before all others,
// until the store has at most maxBytes. It keeps what inUse returns (digests, and
// references that are being turned into digests), what is held, and what was made or used within the last ten minutes, so the store may stay larger. What was
// removed can be pulled or built again. It returns what was removed and the bytes
// freed. inUse is called under the store's lock and must not call the store; its
// error is returned before anything is removed.
func (s *Store) Trim(ctx context.Context, maxBytes int64, inUse func(context.Context) ([]string, error)) (removed []string, freed int64, err error) {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	size, err := s.size(ix)
	if err != nil || size <= maxBytes {
		return nil, 0, err
	}
	needed, err := inUse(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("find out which images are in use: %w", err)
	}
	victims, err := s.fairly(ix, s.removable(ix, needed), maxBytes)
	if err != nil {
		return nil, 0, err
	}
	for _, victim := range victims {
		ix.Images = slices.DeleteFunc(ix.Images, func(r record) bool { return r.same(&victim) })
		removed = append(removed, cmp.Or(strings.Trim(victim.ref(), ":"), victim.Digest))
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

// same reports whether two records are the same entry of the index.
func (r *record) same(other *record) bool {
	return r.ref() == other.ref() && r.Owner == other.Owner && r.CacheKey == other.CacheKey && r.Digest == other.Digest && r.Manifest == other.Manifest
}

// removable returns the records that may go, in the order in which they should.
func (s *Store) removable(ix *index, needed []string) []record {
	var list []record
	for i := range ix.Images {
		r := &ix.Images[i]
		// What somebody built from files of their own cannot be had again.
		// A root filesystem of a snapshot can not either: Prune finds out what may go.
		if r.Owner != "" && r.Current || s.released != nil && r.single() || time.Since(s.lastUse(r)) < usedEvery || s.isNeeded(r, needed) || s.held(r.Digest) {
			continue
		}
		list = append(list, *r)
	}
	builtin := func(r record) int {
		if r.Current && s.recipe(r.ref()) != nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b record) int {
		return cmp.Or(cmp.Compare(builtin(a), builtin(b)), s.lastUse(&a).Compare(s.lastUse(&b)))
	})
	return list
}

// isNeeded reports whether something needs a record.
func (s *Store) isNeeded(r *record, needed []string) bool {
	return slices.ContainsFunc(needed, func(what string) bool {
		if r.has(what) || r.Name != "" && r.ref() == what {
			return true
		}
		parsed, err := reference.Parse(what, s.defaultRegistry)
		if err != nil || parsed.Digest != "" {
			return err == nil && r.has(parsed.Digest)
		}
		return r.Current && slices.Contains(parsed.Names, r.ref())
	})
}

// size returns the bytes of everything that an index names.
func (s *Store) size(ix *index) (int64, error) {
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
