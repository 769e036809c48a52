package image

import (
	"context"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// LookupFor is [Store.Lookup] for a workspace. A name of an image that the workspace has built
// means that image. For an image that the workspace is not known to be allowed to use, it returns
// the same as if the store did not have the image; Readers reports this.
func (s *Store) LookupFor(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img, err := s.names.built(ctx, ws, ref)
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return img, err
	}
	img, err = s.names.lookup(ctx, ref)
	if err != nil {
		return img, err
	}
	ix, err := s.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	if rec := s.names.private(ix, ref, registry.Puller{Workspace: ws}); rec != nil {
		img.Readers = rec.Readers() // of the record that the digest names
	}
	if img.VisibleTo(ws) {
		return img, nil
	}
	parsed, err := reference.Parse(ref, s.names.defaultRegistry)
	if err != nil {
		return spec.Image{}, err
	}
	if parsed.Remote == nil {
		return spec.Image{}, s.names.unknown(ctx, ref)
	}
	hidden := remoteImage(parsed)
	hidden.Readers = img.Readers
	return hidden, nil
}

// remoteImage returns the known facts about an image that has to be pulled.
func remoteImage(parsed reference.Reference) spec.Image {
	img := spec.Image{Name: reference.RepositoryName(parsed.Remote), ID: reference.ImageID(reference.RepositoryName(parsed.Remote) + reference.Identifier(parsed.Remote))}
	if parsed.Digest != "" {
		img.Digest = parsed.Digest
	} else {
		img.Tag = parsed.Remote.Identifier()
	}
	return img
}

// Ensure makes sure that the store has the image that ref names, which may take minutes, and
// returns it like [Store.Resolve]. It builds a built-in image that is not built; an older build
// than this program's recipe is good enough. It pulls other images; when the registry was not asked
// about a tag for longer than [Options.RecheckInterval], Ensure asks whether the tag has moved, and
// uses the present image if it gets no answer. Images pulled with credentials are only for
// workspaces that the registry also permits, unless who is zero: the server itself. Progress, which
// may be nil, receives events as in [BuildOptions].
//
// Errors: as Resolve, [Store.Build] and [Store.Pull].
func (s *Store) Ensure(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, string, error) {
	img, rootfs, err := s.Resolve(ctx, ref)
	if err == nil {
		moved, err := s.asker.ask(ctx, ref, who)
		if err != nil {
			return spec.Image{}, "", err
		}
		if !moved {
			return img, rootfs, nil
		}
	}
	if r, recipeErr := s.names.builtIn(ref); recipeErr == nil {
		_, err = s.builder.buildOnce(ctx, r, BuildOptions{Progress: progress})
	} else if parsed, refErr := reference.Parse(ref, s.names.defaultRegistry); refErr == nil && parsed.Remote != nil {
		_, err = s.Update(ctx, ref, who, progress)
	}
	if err != nil {
		return spec.Image{}, "", err
	}
	return s.Resolve(ctx, ref)
}

// Update is [Store.Pull] for a workspace.
func (s *Store) Update(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, error) {
	return s.puller.pullAs(ctx, ref, PullOptions{Progress: progress, Puller: who})
}
