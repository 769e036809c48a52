package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/verify"
	"golang.org/x/sync/errgroup"
)

// BuildOptions configure a build.
type BuildOptions struct {
	// Force builds even when the recipe's image exists, to get newer packages.
	Force bool
	// Progress receives the events of the build, from one goroutine at a time; may be nil. It must
	// return soon.
	Progress func(phase.Event)
}

// builder makes the images of recipes.
type builder struct {
	bootstrap recipe.Bootstrapper
	index     *index.Table
	names     *names
	files     *files
	layout    archive.Layout
	verifier  *verify.Verifier
	keeper    *keeper
	puller    *puller
	scratch   *rootfs.Scratch
}

// buildOnce is [Store.Build].
func (b *builder) buildOnce(ctx context.Context, r *recipe.Recipe, opts BuildOptions) (spec.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	before, err := b.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	rec := before.Current(r.Ref())
	if !opts.Force && b.usable(ctx, r, rec) {
		opts.Progress(phase.Event{Phase: phase.Done, Message: "already built"})
		return b.names.imageOf(rec), nil
	}
	unlock, err := lock.File(ctx, b.files.lockPath("build-"+r.Ref()), func() {
		opts.Progress(phase.Event{Phase: phase.Waiting, Message: "another build of " + r.Ref() + " is running"})
	})
	if err != nil {
		return spec.Image{}, fmt.Errorf("build image %s: %w", r.Ref(), err)
	}
	defer unlock()
	now, err := b.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	meanwhile := now.Current(r.Ref())
	if meanwhile != nil && (rec == nil || !meanwhile.UpdatedAt.Equal(rec.UpdatedAt)) && b.usable(ctx, r, meanwhile) {
		opts.Progress(phase.Event{Phase: phase.Done, Message: "built meanwhile"})
		return b.names.imageOf(meanwhile), nil
	}
	work := b.build
	if r.Pull() != "" {
		work = b.adopt
	}
	img, err := work(ctx, r, opts)
	if err != nil {
		return spec.Image{}, fmt.Errorf("build image %s: %w", r.Ref(), err)
	}
	opts.Progress(phase.Event{Phase: phase.Done, Message: "built"})
	return img, nil
}

// usable reports whether rec is an undamaged build of the recipe. It reads the file only when its
// size or time is suspicious; Resolve moves a damaged file aside.
func (b *builder) usable(ctx context.Context, r *recipe.Recipe, rec *index.Record) bool {
	return rec != nil && rec.RecipeHash == r.Hash() && (verify.Untouched(b.files.erofsPath(rec.Digest), rec) || b.verifier.Verify(ctx, rec) == nil)
}

// build makes the image even if one exists. The caller holds the build lock.
func (b *builder) build(ctx context.Context, r *recipe.Recipe, opts BuildOptions) (spec.Image, error) {
	work, undo, err := b.files.workDir(ctx)
	if err != nil {
		return spec.Image{}, err
	}
	defer undo.Clean()

	root, err := b.makeRootfs(ctx, r, work, opts.Progress)
	if err != nil {
		return spec.Image{}, err
	}
	rec, err := b.keepRecipe(ctx, r, root)
	if err != nil {
		return spec.Image{}, err
	}
	return b.names.imageOf(rec), nil
}

// makeRootfs runs the bootstrapper and writes its output at the same time.
func (b *builder) makeRootfs(ctx context.Context, r *recipe.Recipe, dir string, progress func(phase.Event)) (*made, error) {
	scratch := filepath.Join(dir, "bootstrap")
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return nil, err
	}
	progress = phase.Serialised(progress)
	pr, pw := io.Pipe()
	var group errgroup.Group
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group.Go(func() error {
		err := b.bootstrap.Bootstrap(ctx, recipe.Job{Recipe: r, Dir: scratch, Progress: progress}, pw)
		_ = pw.CloseWithError(err) // nil is the end of the stream
		return err
	})
	t := b.scratch.Tree(ctx, "")
	defer t.Close()
	root, packages, err := r.Write(ctx, pr, dir, t, progress)
	if err != nil {
		cancel(err)
		_ = pr.CloseWithError(err)
	}
	if bootstrapErr := group.Wait(); bootstrapErr != nil && err == nil {
		err = bootstrapErr
	}
	return &made{Result: root, packages: packages}, err
}
