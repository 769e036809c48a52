package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/sandbox"
)

// adopt makes the image under the recipe's reference in a registry the recipe's image, with its
// configuration in the registry: the image that the store has under that reference, unless opts ask
// for a newer image, or else an image pulled without credentials, as all workspaces get it. The
// caller holds the build lock.
//
// Errors: the errors of [Store.Pull].
func (b *builder) adopt(ctx context.Context, r *recipe.Recipe, opts BuildOptions) (spec.Image, error) {
	parsed, err := reference.Parse(r.Pull(), b.names.defaultRegistry)
	if err != nil {
		return spec.Image{}, err
	}
	if !opts.Force {
		if img, done, err := b.adoptFrom(ctx, r, parsed.Names); done || err != nil {
			return img, err
		}
	}
	pulled, err := b.puller.pullAs(ctx, r.Pull(), PullOptions{Progress: opts.Progress})
	if err != nil {
		return spec.Image{}, err
	}
	img, done, err := b.adoptFrom(ctx, r, []string{pulled.Ref()})
	if err == nil && !done {
		err = sandbox.Errorf(sandbox.Unavailable, "%s was removed as soon as it was pulled", pulled.Ref())
	}
	return img, err
}

// adoptFrom makes the first of the names that is free for all workspaces the recipe's image; done
// is false when there is none.
func (b *builder) adoptFrom(ctx context.Context, r *recipe.Recipe, names []string) (img spec.Image, done bool, err error) {
	ix, unlock, err := b.index.Lock(ctx)
	if err != nil {
		return spec.Image{}, false, err
	}
	defer unlock()
	for _, n := range names {
		source := ix.Current(n)
		if source == nil || source.Readers() != nil || !verify.Untouched(b.files.erofsPath(source.Digest), source) {
			continue
		}
		rec, img := *source, r.Image()
		rec.Name, rec.Tag, rec.RecipeHash, rec.Description = img.Name, img.Tag, r.Hash(), img.Description
		rec.MemoryBytes, rec.ReadinessPort, rec.TTL = img.MemoryBytes, img.ReadinessPort, img.TTL
		rec.Pull, rec.FileTime, rec.UpdatedAt = nil, source.ModTime(), time.Now().UTC()
		if rec.CreatedAt = rec.UpdatedAt; ix.Current(rec.Ref()) != nil {
			rec.CreatedAt = ix.Current(rec.Ref()).CreatedAt
		}
		ix.Add(rec)
		return b.names.imageOf(&rec), true, b.index.Write(ix)
	}
	return spec.Image{}, false, nil
}
