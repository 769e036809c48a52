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

// Lookup returns what is known about the image that ref names, as [Store.Resolve]
// does, also of a built-in one that is not built yet, and of one that a registry
// may have: they have no digest but the one in ref. Errors: Invalid, NotFound.
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

// LookupFor is [Store.Lookup] for a workspace. A name that it has given to an image that
// it built means this one. Of an image that it is not known to be allowed to have it
// learns what it would if the image were not here; Readers says that it is.
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
		img.Readers = rec.Readers() // which made what the digest names
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

// remoteImage returns what is known about an image that has to be pulled.
func remoteImage(parsed reference.Reference) spec.Image {
	img := spec.Image{Name: reference.RepositoryName(parsed.Remote), ID: reference.ImageID(reference.RepositoryName(parsed.Remote) + reference.Identifier(parsed.Remote))}
	if parsed.Digest != "" {
		img.Digest = parsed.Digest
	} else {
		img.Tag = parsed.Remote.Identifier()
	}
	return img
}

// Ensure makes sure that the image that ref names is here, which may take
// minutes, and returns it like [Store.Resolve]. A built-in image is built when it
// is not; an older build of it than this program's recipe is good enough. Others
// are pulled; when a tag's registry was not asked for longer than
// [Options.RecheckInterval], it is asked whether the tag has moved, and what is
// here is good enough when it cannot be. What was had by signing in only is for
// those alone who have it from the registry, too, unless who is zero: the server
// itself. Progress, which may be nil, is told what happens as in [BuildOptions].
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

// Update is [Store.Pull] for somebody.
func (s *Store) Update(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, error) {
	return s.Pull(ctx, ref, PullOptions{Progress: progress, Who: who})
}

// Stale reports whether what a reference means here is not simply there for
// somebody: [Store.Ensure] asks the registry again, or whether they may have it.
func (s *Store) Stale(ref string, who registry.Puller) bool {
	ix, err := s.index.Load()
	if err != nil {
		return false
	}
	return s.checkOwner(ix, ref, who) != nil || s.private(ix, ref, who) != nil || s.old(ix, ref)
}

// ask asks the registry of an image that is here whether it has another one now,
// when it has not been asked for long or it must say whether who may have it.
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

// old reports whether the registry was not asked for a tag for too long.
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

// moved asks the registry whether a tag means something else than here, and
// notes that it was asked, also in vain: not every sandbox should wait for a
// registry that does not answer.
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

// noteCheck writes down that a registry is being asked for a reference, or, with a
// proof, that it still means the same and who was told so.
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
