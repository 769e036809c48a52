package image

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// Remove removes a reference. The files stay until [Store.Prune]; a built-in image can be built
// again. Errors: Invalid; NotFound when it is not built.
func (s *Store) Remove(ctx context.Context, ref string) error {
	parsed, err := reference.Parse(ref, s.defaultRegistry)
	if err != nil {
		return err
	}
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, n := range parsed.Names {
		if rec := ix.Current(n); rec != nil {
			rec.Current = false
			return s.index.Write(ix)
		}
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no built image %q", ref)
}

// Prune deletes images without a reference: older builds, removed images, images that Commit made
// without a name over an hour ago, or with a CacheKey that was not requested for two weeks, and
// files without an entry after a crash. It keeps images in use, and lost images for a while (see
// [Store.Lost]). inUse returns the digests that something still needs (a sandbox, a snapshot).
// Prune calls it without a lock, perhaps several times, and returns its error before it deletes
// anything. Prune returns the bytes freed.
func (s *Store) Prune(ctx context.Context, inUse func(context.Context) (digests []string, err error)) (freed int64, err error) {
	u, ix, unlock, err := s.lockForRemoval(ctx, lists{inUse: inUse, released: s.released})
	if err != nil {
		return 0, err
	}
	defer unlock()
	for i := range ix.Images {
		maps.DeleteFunc(ix.Images[i].Users, func(_ sandbox.WorkspaceID, at time.Time) bool { return time.Since(at) > cacheGrace })
	}
	lost := s.keepLost(ix, u, time.Now())
	ix.Images = slices.DeleteFunc(ix.Images, func(r index.Record) bool {
		return !r.Current && !fresh(&r) && !slices.Contains(u.needed, r.Digest) && !lost[r.Digest] && !s.isUsed(u, r.Digest)
	})
	freed, err = s.sweep(ix)
	if err != nil {
		return freed, err
	}
	parts, err := s.downloads.RemoveOld(pruneGrace)
	return freed + parts, err
}

// sweep writes the index and deletes the files that it does not name. The caller holds the index's
// lock.
func (s *Store) sweep(ix *index.Index) (freed int64, err error) {
	blobs, err := s.liveBlobs(ix)
	if err != nil {
		return 0, err
	}
	if err := s.index.Write(ix); err != nil {
		return 0, err
	}
	have := func(name string) bool { return ix.ByDigest("sha256:"+strings.TrimSuffix(name, ".erofs")) != nil }
	for _, dir := range []struct {
		name string
		keep func(name string) bool
	}{
		{s.imagesDir(), have},
		{s.leases.Dir(), have},
		{s.layout.BlobsDir(), func(name string) bool { return blobs[name] }},
	} {
		n, err := deleteOthers(dir.name, dir.keep)
		if freed += n; err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// pruneGrace is the time for which an image that Commit made without a name stays until something
// uses it, and the time for which the blobs of an unfinished pull stay.
const pruneGrace = time.Hour

// fresh reports whether something may be about to use the record.
func fresh(r *index.Record) bool {
	grace := pruneGrace
	if r.CacheKey != "" {
		grace = cacheGrace
	}
	return r.Name == "" && time.Since(r.UpdatedAt) < grace
}

// liveBlobs returns the names of the layout's blobs that the index needs.
func (s *Store) liveBlobs(ix *index.Index) (map[string]bool, error) {
	live := map[string]bool{}
	for _, rec := range ix.Images {
		manifest, err := s.manifestOf(&rec)
		if err != nil {
			return nil, err
		}
		live[rec.Manifest.Digest.Hex], live[manifest.Config.Digest.Hex] = true, true
		for _, l := range manifest.Layers {
			live[l.Digest.Hex] = true
		}
	}
	return live, nil
}

// deleteOthers deletes the files of a directory for which keep returns false.
func deleteOthers(dir string, keep func(name string) bool) (freed int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		if keep(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err == nil {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if err == nil {
			freed += info.Size()
		}
		errs = append(errs, err)
	}
	return freed, errors.Join(errs...)
}
