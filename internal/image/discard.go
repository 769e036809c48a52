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

// Users remove images of their own workspace; administrators also images for all workspaces. If
// several workspaces got an image with credentials, a workspace can only remove its own access. A
// removal removes a name: sandboxes and snapshots made from the image stay, and its files stay
// until nothing needs them and they are pruned.

// Remover is the workspace that an image is removed for.
type Remover struct {
	Workspace sandbox.WorkspaceID
	// Administrator may remove images for all workspaces.
	Administrator bool
}

// Discard removes the name of an image for a workspace: an image that it has built or that its
// credentials gave access to; or for all workspaces, when an administrator removes an image for
// all. Ref is the image's id, or a reference as for [Store.Resolve]. It returns the removed image.
// After a crash all of it is done or nothing.
//
// Errors: Invalid for an invalid reference; NotFound for an image that the store does not have, or
// only for others; Forbidden for an image that only administrators may remove; Conflict for a
// digest that several images have.
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

// named returns the record that an id or a reference names for a workspace; its own images take
// precedence, and images of other workspaces do not exist for it.
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
	for _, r := range s.recipes { // an image that is not built
		if img := r.Image(); string(img.ID) == ref || slices.Contains(parsed.Names, img.Ref()) {
			if !who.Administrator {
				return nil, notForOne(img.Ref())
			}
			return nil, sandbox.Errorf(sandbox.NotFound, "the image %s is not built", img.Ref())
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no image %.100q", ref)
}

// tagged returns the record of a name with a tag for a workspace, or nil.
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

// PruneRequest describes what to prune.
type PruneRequest struct {
	// Workspace is the workspace whose images are pruned.
	Workspace sandbox.WorkspaceID
	// All prunes the images of all workspaces, and pulled images that have a name but were not used
	// within ten minutes and are in no catalogue: they can be pulled again.
	All bool
	// Lost also removes lost images: see [Store.Lost].
	Lost bool
	// DryRun removes nothing.
	DryRun bool
}

// Pruned are the images that were removed, or would be.
type Pruned struct {
	Images []PrunedImage
	// FreedBytes is the disk space that was freed.
	FreedBytes int64
}

// PrunedImage is an image that was removed.
type PrunedImage struct {
	// Ref is the name that it had; "" for an image without a name, and for images of other workspaces.
	Ref string
	// Workspace is its owner; "" for an image for all workspaces or with several readers.
	Workspace sandbox.WorkspaceID
	Digest    string
	SizeBytes int64 // of its root filesystem, which other images may share
}

// PruneFor removes the unused images of a workspace, or of all: images that lost their names,
// images that were made without a name over an hour ago, and cached layers of builds that were not
// used within ten minutes. Built and imported images with a name stay, and so do images in
// [Options.InUse], images in use and lost images. After a crash the store has the images or not,
// and the next PruneFor of all or [Store.Prune] removes remaining files.
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

// prunable reports whether a request covers a record, which may be removed when nothing uses it.
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
