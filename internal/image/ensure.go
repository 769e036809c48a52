package image

import (
	"context"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/remote"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Lookup returns the known facts about the image that ref names, as [Store.Resolve] does, also for
// a built-in image that is not built yet, and for an image that a registry may have: without a
// digest but the digest in ref. Errors: Invalid, NotFound.
func (s *Store) Lookup(ctx context.Context, ref string) (spec.Image, error) {
	ix, err := s.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	rec, err := s.find(ctx, ix, ref)
	if err == nil {
		return s.imageOf(rec), nil
	}
	if r, recipeErr := s.Recipe(ref); recipeErr == nil {
		return s.entry(r, nil), nil
	}
	if parsed, refErr := reference.Parse(ref, s.defaultRegistry); refErr == nil && parsed.Remote != nil {
		return remoteImage(parsed), nil
	}
	return spec.Image{}, err
}

// LookupFor is [Store.Lookup] for a workspace. A name of an image that the workspace has built
// means that image. For an image that the workspace is not known to be allowed to use, it returns
// the same as if the store did not have the image; Readers reports this.
func (s *Store) LookupFor(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img, err := s.Built(ctx, ws, ref)
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return img, err
	}
	img, err = s.Lookup(ctx, ref)
	if err != nil {
		return img, err
	}
	ix, err := s.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	if rec := s.private(ix, ref, registry.Puller{Workspace: ws}); rec != nil {
		img.Readers = rec.Readers() // of the record that the digest names
	}
	if img.VisibleTo(ws) {
		return img, nil
	}
	parsed, err := reference.Parse(ref, s.defaultRegistry)
	if err != nil {
		return spec.Image{}, err
	}
	if parsed.Remote == nil {
		return spec.Image{}, s.unknown(ctx, ref)
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
		moved, err := s.ask(ctx, ref, who)
		if err != nil {
			return spec.Image{}, "", err
		}
		if !moved {
			return img, rootfs, nil
		}
	}
	if r, recipeErr := s.Recipe(ref); recipeErr == nil {
		_, err = s.Build(ctx, r, BuildOptions{Progress: progress})
	} else if parsed, refErr := reference.Parse(ref, s.defaultRegistry); refErr == nil && parsed.Remote != nil {
		_, err = s.Update(ctx, ref, who, progress)
	}
	if err != nil {
		return spec.Image{}, "", err
	}
	return s.Resolve(ctx, ref)
}

// Update is [Store.Pull] for a workspace.
func (s *Store) Update(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, error) {
	return s.Pull(ctx, ref, PullOptions{Progress: progress, Puller: who})
}

// Stale reports whether [Store.Ensure] would ask the registry about a reference: whether its tag
// has moved, or whether the workspace may use the image.
func (s *Store) Stale(ref string, who registry.Puller) bool {
	ix, err := s.index.Load()
	if err != nil {
		return false
	}
	return s.checkOwner(ix, ref, who) != nil || s.private(ix, ref, who) != nil || s.old(ix, ref)
}

// ask asks the registry of a stored image whether the reference means another image now, if it was
// not asked for long or must authorize the workspace.
func (s *Store) ask(ctx context.Context, ref string, who registry.Puller) (moved bool, err error) {
	ix, err := s.index.Load()
	if err != nil {
		return false, err
	}
	if err := s.checkOwner(ix, ref, who); err != nil {
		return false, err
	}
	checkCtx, cancel := context.WithTimeout(ctx, remote.AnswerTimeout)
	defer cancel()
	if rec := s.private(ix, ref, who); rec != nil {
		moved, known, err := s.askFor(checkCtx, rec, who)
		if known || err != nil {
			return moved, err
		}
	}
	if !s.old(ix, ref) {
		return false, nil
	}
	moved, err = s.moved(checkCtx, ref, who)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("a registry cannot be asked whether a tag has moved", "image", ref, "error", err)
	}
	return moved && err == nil, ctx.Err()
}

// old reports whether the registry was last asked about a tag too long ago.
func (s *Store) old(ix *index.Index, ref string) bool {
	if s.recheck == 0 {
		return false
	}
	parsed, err := reference.Parse(ref, s.defaultRegistry)
	if err != nil || parsed.Remote == nil || parsed.Digest != "" {
		return false
	}
	for _, n := range parsed.Names {
		if rec := ix.Current(n); rec != nil {
			return rec.Pull != nil && time.Since(rec.Pull.CheckedAt) > s.recheck
		}
	}
	return false
}

// moved asks the registry whether a tag means another image now, and records the attempt even if it
// fails: not every sandbox should wait for a registry that does not answer.
func (s *Store) moved(ctx context.Context, ref string, who registry.Puller) (bool, error) {
	parsed, err := reference.Parse(ref, s.defaultRegistry)
	if err != nil {
		return false, err
	}
	if err := s.noteCheck(ctx, parsed.Remote, nil); err != nil {
		return false, err
	}
	ix, err := s.index.Load()
	if err != nil {
		return false, err
	}
	repo, err := s.registries.Open(ctx, parsed.Remote.Context(), who, remote.Pull)
	if err != nil {
		return false, err
	}
	now, err := repo.Head(ctx, parsed.Remote)
	if err != nil {
		return false, err
	}
	if rec := ix.Pulled(parsed.Remote); rec == nil || rec.Pull.Asked != now {
		return true, nil
	}
	proof := repo.Proof()
	return false, s.noteCheck(ctx, parsed.Remote, &proof)
}

// noteCheck records that a registry is being asked about a reference, or, with a proof, that the
// reference still means the same and which workspace was authorized.
func (s *Store) noteCheck(ctx context.Context, ref ociname.Reference, proof *string) error {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if rec := ix.Pulled(ref); rec != nil {
		rec.Pull.CheckedAt = time.Now().UTC()
		if proof != nil {
			rec.Pull.Prove(*proof)
		}
		return s.index.Write(ix)
	}
	return nil
}
