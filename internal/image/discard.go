package image

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// What users remove is theirs alone, or is for all workspaces and then a matter of
// administrators. What several workspaces have by signing in, each of them can only
// have no more. In any case it is a name that goes: what was made from the image goes
// on, and its files stay until nothing needs them and they are pruned.

// Remover is for whom images are removed.
type Remover struct {
	Workspace sandbox.WorkspaceID
	// Administrator may remove what is for all workspaces.
	Administrator bool
}

// Discard makes an image mean nothing to a workspace: one that it has built or had by
// signing in; or to all of them, when an administrator removes one that is for all. Ref
// is the image's id, or a reference as for [Store.Resolve]. It returns what was
// removed. After a crash all of it is done or nothing.
//
// Errors: Invalid for what is no reference; NotFound for what is not here, or is only
// for others; Forbidden for what only administrators may remove; Conflict for a digest
// that several images have.
func (s *Store) Discard(ctx context.Context, who Remover, ref string) (spec.Image, error) {
	parsed, err := reference.Parse(ref, s.defaultRegistry)
	if err != nil {
		return spec.Image{}, err
	}
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return spec.Image{}, err
	}
	defer unlock()
	rec, err := s.named(ix, who, ref, parsed)
	if err != nil {
		return spec.Image{}, err
	}
	img := s.imageOf(rec)
	switch {
	case rec.Owner == "" && rec.Readers() == nil && !who.Administrator:
		return spec.Image{}, notForOne(img.Ref())
	case rec.Owner == "" && rec.Readers() != nil && slices.ContainsFunc(rec.Readers(), func(ws sandbox.WorkspaceID) bool { return ws != who.Workspace }):
		rec.Pull.Forget(who.Workspace)
	default:
		rec.Current = false
	}
	return img, s.index.Write(ix)
}

func notForOne(ref string) error {
	return sandbox.Errorf(sandbox.Forbidden, "the image %.200s is for all workspaces; an administrator of the installation can remove it", ref)
}

// named returns the record with a name that a workspace means by an id or a
// reference; its own come first, and those of others are not there.
func (s *Store) named(ix *index.Index, who Remover, ref string, parsed reference.Reference) (*index.Record, error) {
	var digests []*index.Record
	for i := range ix.Images {
		rec := &ix.Images[i]
		img := rec.Image()
		if !rec.Current || !img.VisibleTo(who.Workspace) {
			continue
		}
		if string(img.ID) == ref {
			return rec, nil
		}
		if parsed.Digest != "" && rec.Has(parsed.Digest) && (len(parsed.Names) == 0 || slices.Contains(parsed.Names, rec.Name)) {
			digests = append(digests, rec)
		}
	}
	if len(digests) == 1 {
		return digests[0], nil
	}
	if len(digests) > 1 {
		var names []string
		for _, rec := range digests {
			names = append(names, rec.Ref())
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "several images have this digest: %s; remove them by these names", strings.Join(names, ", "))
	}
	if parsed.Digest == "" {
		if rec := s.tagged(ix, who, ref, parsed); rec != nil {
			return rec, nil
		}
	}
	for _, r := range s.recipes { // one that is not built
		if img := r.Image(); string(img.ID) == ref || slices.Contains(parsed.Names, img.Ref()) {
			if !who.Administrator {
				return nil, notForOne(img.Ref())
			}
			return nil, sandbox.Errorf(sandbox.NotFound, "the image %s is not built", img.Ref())
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no image %.100q", ref)
}

// tagged returns the record that a workspace means by a name with a tag, or nil.
func (s *Store) tagged(ix *index.Index, who Remover, ref string, parsed reference.Reference) *index.Record {
	if name, tag, err := reference.BuiltName(ref); err == nil && who.Workspace != "" {
		if rec := ix.Owned(who.Workspace, name+":"+tag); rec != nil {
			return rec
		}
	}
	for _, n := range parsed.Names {
		if rec := ix.Current(n); rec != nil {
			if img := rec.Image(); img.VisibleTo(who.Workspace) {
				return rec
			}
		}
	}
	return nil
}

// PruneRequest says what to prune.
type PruneRequest struct {
	// Workspace is whose images are pruned.
	Workspace sandbox.WorkspaceID
	// All prunes the images of all workspaces, and pulled ones which have a name but
	// were not used within ten minutes and are in no catalogue: they can be pulled again.
	All bool
	// Lost removes what is lost, too: see [Store.Lost].
	Lost bool
	// DryRun removes nothing.
	DryRun bool
}

// Pruned is what was removed, or would be.
type Pruned struct {
	Images []PrunedImage
	// FreedBytes is how much less is on the disk.
	FreedBytes int64
}

// PrunedImage is an image that was removed.
type PrunedImage struct {
	// Ref is the name that it had; "" for what had none, and for that of others.
	Ref string
	// Workspace had it for itself; "" for what was everybody's or had by signing in.
	Workspace sandbox.WorkspaceID
	Digest    string
	SizeBytes int64 // of its root filesystem, which others may share
}

// PruneFor removes what nothing uses of a workspace, or of all: images that lost their
// names, those that were made without one over an hour ago, and cached layers of builds
// that were not used within ten minutes. What has a name and was built or imported
// stays, and so does what [Options.InUse] returns, what is held, and what is lost. After a crash the
// store has the images or not, and the next PruneFor of all or [Store.Prune] removes files
// that are left of them.
func (s *Store) PruneFor(ctx context.Context, req PruneRequest) (Pruned, error) {
	u, ix, unlock, err := s.lockForRemoval(ctx, lists{inUse: s.inUse, released: s.released, catalogued: s.catalogued})
	if err != nil {
		return Pruned{}, err
	}
	defer unlock()
	lost := map[string]bool{}
	if !req.Lost {
		lost = s.keepLost(ix, u, time.Now())
	}
	var done Pruned
	kept := ix.Keep(func(r *index.Record) bool {
		if !s.prunable(r, req, u.catalogued) || s.isNamed(r, u.needed) || lost[r.Digest] || s.isUsed(u, r.Digest) {
			return true
		}
		gone := PrunedImage{Workspace: r.Owner, Digest: r.Digest, SizeBytes: r.SizeBytes}
		if img := r.Image(); img.VisibleTo(req.Workspace) {
			gone.Ref = strings.Trim(r.Ref(), ":")
		}
		done.Images = append(done.Images, gone)
		return false
	})
	if len(done.Images) > 0 {
		before, err := s.size(ix)
		if err != nil {
			return Pruned{}, err
		}
		after, err := s.size(kept)
		if err != nil {
			return Pruned{}, err
		}
		done.FreedBytes = before - after
	}
	if req.DryRun || len(done.Images) == 0 && !req.All {
		return done, nil
	}
	freed, err := s.sweep(kept)
	if err != nil || !req.All {
		return done, err
	}
	parts, err := s.downloads.RemoveOld(pruneGrace)
	done.FreedBytes = freed + parts
	return done, err
}

// prunable reports whether a request is about a index.Record that may go when nothing uses it.
func (s *Store) prunable(r *index.Record, req PruneRequest, catalogued []string) bool {
	mine := r.Owner == req.Workspace
	if r.Owner == "" {
		readers := r.Readers()
		mine = len(readers) == 1 && readers[0] == req.Workspace
	}
	unused := time.Since(s.lastUse(r)) >= usedEvery
	switch {
	case !req.All && (!mine || req.Workspace == ""):
		return false
	case r.Current:
		return req.All && r.Owner == "" && r.Pull != nil && unused && s.recipe(r.Ref()) == nil && !s.isNamed(r, catalogued)
	case r.CacheKey != "":
		return unused
	}
	return !fresh(r)
}
