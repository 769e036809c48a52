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

// Remove removes a reference. The files stay until [Removal.Prune]; a built-in image can be built
// again. Errors: Invalid; NotFound when it is not built.
func (rm *Removal) Remove(ctx context.Context, ref string) error {
	parsed, err := reference.Parse(ref, rm.names.defaultRegistry)
	if err != nil {
		return err
	}
	ix, unlock, err := rm.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, n := range parsed.Names {
		if rec := ix.Current(n); rec != nil {
			rec.Current = false
			return rm.index.Write(ix)
		}
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no built image %q", ref)
}

// Prune deletes images without a reference: older builds, removed images, images that Commit made
// without a name over an hour ago, or whose last use was over ten minutes ago if [Options.Released] lists
// them, or with a CacheKey that was not requested for two weeks, and files without an entry after a crash. It keeps images in use, and lost images for a while (see
// [Removal.Lost]). inUse returns the digests that something still needs (a sandbox, a snapshot).
// Prune calls it without a lock, perhaps several times, and returns its error before it deletes
// anything. Prune returns the bytes freed.
func (rm *Removal) Prune(ctx context.Context, inUse func(context.Context) (digests []string, err error)) (freed int64, err error) {
	u, ix, unlock, err := rm.lockForRemoval(ctx, lists{inUse: inUse, released: rm.released})
	if err != nil {
		return 0, err
	}
	defer unlock()
	lower := ix.Below(nil)
	for i := range ix.Images {
		r := &ix.Images[i]
		switch gone := slices.Contains(u.released, r.Digest) && !slices.Contains(u.needed, r.Digest); {
		case r.Single() && gone && !rm.isFresh(u, r):
			r.Users = nil // their snapshots were deleted; it may stay for snapshots over it
		case !lower[r.Digest] && !r.Single(): // others count for their users as long as they exist
			maps.DeleteFunc(r.Users, func(_ sandbox.WorkspaceID, at time.Time) bool { return time.Since(at) > cacheGrace })
		}
	}
	lost := rm.keepLost(ix, u, time.Now())
	keep := func(r *index.Record) bool {
		return r.Current || rm.isFresh(u, r) || slices.Contains(u.needed, r.Digest) || lost[r.Digest] || rm.isUsed(u, r.Digest)
	}
	lower = ix.Below(keep)
	ix.Images = slices.DeleteFunc(ix.Images, func(r index.Record) bool { return !keep(&r) && !lower[r.Digest] })
	freed, err = rm.sweep(ix)
	if err != nil {
		return freed, err
	}
	parts, err := rm.downloads.RemoveOld(pruneGrace)
	return freed + parts, err
}

// sweep writes the index and deletes the files that it does not name, with the records of their checks. The caller holds the index's
// lock.
func (rm *Removal) sweep(ix *index.Index) (freed int64, err error) {
	blobs, err := rm.sizes.LiveBlobs(ix)
	if err != nil {
		return 0, err
	}
	if err := rm.index.Write(ix); err != nil {
		return 0, err
	}
	have := func(name string) bool { return ix.ByDigest("sha256:"+strings.TrimSuffix(name, ".erofs")) != nil }
	for _, dir := range []struct {
		name string
		keep func(name string) bool
	}{
		{rm.files.imagesDir(), have},
		{rm.leases.Dir(), have},
		{rm.layout.BlobsDir(), func(name string) bool { return blobs[name] }},
	} {
		n, err := deleteOthers(dir.name, dir.keep)
		if freed += n; err != nil {
			return freed, err
		}
	}
	return freed, rm.verifier.Prune(ix)
}

// pruneGrace is the time for which an image that Commit made without a name stays until a database
// has it, and the time for which the blobs of an unfinished pull stay.
const pruneGrace = time.Hour

// isFresh reports whether something may be about to use the record. The root filesystem of a deleted snapshot counts for no
// limit, so it goes earlier than a root filesystem that no database has yet.
func (rm *Removal) isFresh(u uses, r *index.Record) bool {
	age := time.Since(r.UpdatedAt)
	switch {
	case r.Name != "" || r.IsChain(): // an image that is new keeps its chain
		return false
	case r.CacheKey != "" && r.Owner == "" && len(r.Users) == 0: // it counts for no workspace
		return age < pruneGrace && time.Since(rm.lastKnown(u, r)) < usedEvery
	case r.CacheKey != "":
		return age < cacheGrace
	case r.Single() && slices.Contains(u.released, r.Digest):
		return age < pruneGrace && time.Since(rm.lastKnown(u, r)) < usedEvery
	}
	return age < pruneGrace
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

// PruneFor removes the unused images of a workspace, or of all: images that lost their names,
// images that were made without a name over an hour ago, and cached layers of builds and deleted snapshots
// that were not used within ten minutes. Built and imported images with a name stay, and so do images in
// [Options.InUse], images in use and lost images. After a crash the store has the images or not,
// and the next PruneFor of all or [Removal.Prune] removes remaining files.
func (rm *Removal) PruneFor(ctx context.Context, req PruneRequest) (Pruned, error) {
	u, ix, unlock, err := rm.lockForRemoval(ctx, lists{inUse: rm.inUse, released: rm.released, catalogued: rm.catalogued})
	if err != nil {
		return Pruned{}, err
	}
	defer unlock()
	lost := map[string]bool{}
	if !req.Lost {
		lost = rm.keepLost(ix, u, time.Now())
	}
	var done Pruned
	keep := func(r *index.Record) bool {
		return !rm.prunable(r, req, u) || rm.names.isNamed(r, u.needed) || lost[r.Digest] || rm.isUsed(u, r.Digest)
	}
	lower := ix.Below(keep)
	kept := ix.Keep(func(r *index.Record) bool {
		if keep(r) || lower[r.Digest] {
			return true
		}
		if r.IsChain() {
			return false
		}
		gone := PrunedImage{Workspace: r.Owner, Digest: r.Digest, SizeBytes: ix.Image(r).SizeBytes}
		if img := r.Image(); img.VisibleTo(req.Workspace) {
			gone.Ref = strings.Trim(r.Ref(), ":")
		}
		done.Images = append(done.Images, gone)
		return false
	})
	if len(done.Images) > 0 {
		before, err := rm.sizes.Total(ix)
		if err != nil {
			return Pruned{}, err
		}
		after, err := rm.sizes.Total(kept)
		if err != nil {
			return Pruned{}, err
		}
		done.FreedBytes = before - after
	}
	if req.DryRun || len(done.Images) == 0 && !req.All {
		return done, nil
	}
	freed, err := rm.sweep(kept)
	if err != nil || !req.All {
		return done, err
	}
	parts, err := rm.downloads.RemoveOld(pruneGrace)
	done.FreedBytes = freed + parts
	return done, err
}

// prunable reports whether a request covers a record, which may be removed when nothing uses it.
func (rm *Removal) prunable(r *index.Record, req PruneRequest, u uses) bool {
	if r.IsChain() {
		return true // unless an image stays that needs it
	}
	mine := r.Owner == req.Workspace
	if r.Owner == "" {
		readers := r.Readers()
		mine = len(readers) == 1 && readers[0] == req.Workspace
	}
	unused := time.Since(rm.lastUse(r)) >= usedEvery
	switch {
	case !req.All && (!mine || req.Workspace == ""):
		return false
	case r.Current:
		return req.All && r.Owner == "" && r.Pull != nil && unused && rm.names.recipe(r.Ref()) == nil && !rm.names.isNamed(r, u.catalogued)
	case r.CacheKey != "":
		return unused
	}
	return !rm.isFresh(u, r)
}
