package image

import (
	"context"
	"slices"

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
	parsed, err := reference.Parse(ref, s.names.defaultRegistry)
	if err != nil {
		return spec.Image{}, err
	}
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return spec.Image{}, err
	}
	defer unlock()
	rec, err := s.names.named(ix, who, ref, parsed)
	if err != nil {
		return spec.Image{}, err
	}
	img := s.names.imageOf(rec)
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

// PruneRequest describes what to prune.
type PruneRequest struct {
	// Workspace is the workspace whose images are pruned.
	Workspace sandbox.WorkspaceID
	// All prunes the images of all workspaces, and pulled images that have a name but were not used
	// within ten minutes and are in no catalogue: they can be pulled again.
	All bool
	// Lost also removes lost images: see [Removal.Lost].
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
