package image

import (
	"context"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/modbox/modbox/internal/sandbox"
)

// Lookup returns what is known about the image that ref names, as [Store.Resolve]
// does, also of a built-in one that is not built yet, and of one that a registry
// may have: they have no digest but the one in ref. Errors: Invalid, NotFound.
func (s *Store) Lookup(ctx context.Context, ref string) (sandbox.Image, error) {
	ix, err := s.loadIndex()
	if err != nil {
		return sandbox.Image{}, err
	}
	rec, err := s.find(ctx, ix, ref)
	if err == nil {
		return s.imageOf(rec), nil
	}
	if r, recipeErr := s.Recipe(ref); recipeErr == nil {
		return s.entry(r, nil), nil
	}
	if parsed, refErr := s.parseRef(ref); refErr == nil && parsed.remote != nil {
		return remoteImage(parsed), nil
	}
	return sandbox.Image{}, err
}

// remoteImage returns what is known about an image that has to be pulled.
func remoteImage(parsed reference) sandbox.Image {
	img := sandbox.Image{Name: remoteName(parsed.remote), ID: imageID(remoteName(parsed.remote) + identifier(parsed.remote))}
	if parsed.digest != "" {
		img.Digest = parsed.digest
	} else {
		img.Tag = parsed.remote.Identifier()
	}
	return img
}

// Ensure makes sure that the image that ref names is here, which may take
// minutes, and returns it like [Store.Resolve]. A built-in image is built when it
// is not; an older build of it than this program's recipe is good enough. Others
// are pulled; when a tag's registry was not asked for longer than
// [Options.RecheckInterval], it is asked whether the tag has moved, and what is
// here is good enough when it cannot be. Progress, which may be nil, is told what
// happens as in [BuildOptions].
//
// Errors: as Resolve, [Store.Build] and [Store.Pull].
func (s *Store) Ensure(ctx context.Context, ref string, progress func(Event)) (sandbox.Image, string, error) {
	img, rootfs, err := s.Resolve(ctx, ref)
	if err == nil {
		if !s.Stale(ref) {
			return img, rootfs, nil
		}
		checkCtx, cancel := context.WithTimeout(ctx, recheckTimeout)
		defer cancel()
		if moved, checkErr := s.moved(checkCtx, ref); checkErr != nil || !moved {
			if checkErr != nil && ctx.Err() == nil {
				s.log.Warn("a registry cannot be asked whether a tag has moved", "image", ref, "error", checkErr)
			}
			return img, rootfs, ctx.Err()
		}
	}
	if r, recipeErr := s.Recipe(ref); recipeErr == nil {
		_, err = s.Build(ctx, r, BuildOptions{Progress: progress})
	} else if parsed, refErr := s.parseRef(ref); refErr == nil && parsed.remote != nil {
		_, err = s.Update(ctx, ref, progress)
	}
	if err != nil {
		return sandbox.Image{}, "", err
	}
	return s.Resolve(ctx, ref)
}

// Update is [Store.Pull] with the credentials of [Options].
func (s *Store) Update(ctx context.Context, ref string, progress func(Event)) (sandbox.Image, error) {
	return s.Pull(ctx, ref, PullOptions{Progress: progress, Credentials: s.credentials})
}

// recheckTimeout bounds asking a registry whether a tag has moved.
const recheckTimeout = 15 * time.Second

// Stale reports whether what a reference means here is to be asked for again:
// [Store.Ensure] does.
func (s *Store) Stale(ref string) bool {
	if s.recheck == 0 {
		return false
	}
	ix, err := s.loadIndex()
	if err != nil {
		return false
	}
	parsed, err := s.parseRef(ref)
	if err != nil || parsed.remote == nil || parsed.digest != "" {
		return false
	}
	for _, n := range parsed.names {
		if rec := ix.current(n); rec != nil {
			return rec.Pull != nil && time.Since(rec.Pull.CheckedAt) > s.recheck
		}
	}
	return false
}

// moved asks the registry whether a tag means something else than here, and
// notes that it was asked, also in vain: not every sandbox should wait for a
// registry that does not answer.
func (s *Store) moved(ctx context.Context, ref string) (bool, error) {
	parsed, err := s.parseRef(ref)
	if err != nil {
		return false, err
	}
	if err := s.noteCheck(ctx, parsed.remote); err != nil {
		return false, err
	}
	ix, err := s.loadIndex()
	if err != nil {
		return false, err
	}
	reg, err := s.openRegistry(ctx, parsed.remote.Context(), s.credentials)
	if err != nil {
		return false, err
	}
	desc, err := remote.Head(parsed.remote, remote.WithContext(ctx), remote.WithTransport(reg.transport))
	if err != nil {
		return false, reg.explain(ctx, err)
	}
	rec := ix.pulled(parsed.remote)
	return rec == nil || rec.Pull.Asked != desc.Digest, nil
}

// noteCheck writes down that a registry is being asked for a reference.
func (s *Store) noteCheck(ctx context.Context, ref ociname.Reference) error {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if rec := ix.pulled(ref); rec != nil {
		rec.Pull.CheckedAt = time.Now().UTC()
		return s.writeIndex(ix)
	}
	return nil
}
