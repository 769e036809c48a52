package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
)

// BuildOptions configure a build.
type BuildOptions struct {
	// Force builds even when the recipe's image exists, to get newer packages.
	Force bool
	// Progress receives the events of the build, from one goroutine at a time; may be nil. It must
	// return soon.
	Progress func(phase.Event)
}

// Build makes the image of a recipe the image of the recipe's reference. If an undamaged image
// exists, it returns that at once. Concurrent builds of a reference, in this process and others,
// share a build: the later callers wait and return its image.
//
// Errors: Unavailable when this host lacks a program or a program fails, with its name and the
// reason; Invalid when the resulting files are not acceptable; for a recipe that is pulled, the
// errors of [Store.Pull]. After an error, also when a context ends, the store is unchanged.
func (s *Store) Build(ctx context.Context, r *recipe.Recipe, opts BuildOptions) (spec.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	before, err := s.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	rec := before.Current(r.Ref())
	if !opts.Force && s.usable(ctx, r, rec) {
		opts.Progress(phase.Event{Phase: phase.Done, Message: "already built"})
		return s.imageOf(rec), nil
	}
	unlock, err := lock.File(ctx, s.lockPath("build-"+r.Ref()), func() {
		opts.Progress(phase.Event{Phase: phase.Waiting, Message: "another build of " + r.Ref() + " is running"})
	})
	if err != nil {
		return spec.Image{}, fmt.Errorf("build image %s: %w", r.Ref(), err)
	}
	defer unlock()
	now, err := s.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	meanwhile := now.Current(r.Ref())
	if meanwhile != nil && (rec == nil || !meanwhile.UpdatedAt.Equal(rec.UpdatedAt)) && s.usable(ctx, r, meanwhile) {
		opts.Progress(phase.Event{Phase: phase.Done, Message: "built meanwhile"})
		return s.imageOf(meanwhile), nil
	}
	work := s.build
	if r.Pull() != "" {
		work = s.adopt
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
func (s *Store) usable(ctx context.Context, r *recipe.Recipe, rec *index.Record) bool {
	return rec != nil && rec.RecipeHash == r.Hash() && (untouched(s.erofsPath(rec.Digest), rec) || s.verify(ctx, rec) == nil)
}

// build makes the image even if one exists. The caller holds the build lock.
func (s *Store) build(ctx context.Context, r *recipe.Recipe, opts BuildOptions) (spec.Image, error) {
	work, err := s.workDir(ctx)
	if err != nil {
		return spec.Image{}, err
	}
	undo := cleanup.Make(func() { _ = work.Close() })
	undo.Add(func() { _ = os.RemoveAll(work.Name()) }) // the next Open removes a directory that stays
	defer undo.Clean()

	root, err := s.makeRootfs(ctx, r, work.Name(), opts.Progress)
	if err != nil {
		return spec.Image{}, err
	}
	rec, err := s.keepRecipe(ctx, r, root)
	if err != nil {
		return spec.Image{}, err
	}
	return s.imageOf(rec), nil
}

// makeRootfs runs the bootstrapper and writes its output at the same time.
func (s *Store) makeRootfs(ctx context.Context, r *recipe.Recipe, dir string, progress func(phase.Event)) (*made, error) {
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
		err := s.bootstrap.Bootstrap(ctx, recipe.Job{Recipe: r, Dir: scratch, Progress: progress}, pw)
		_ = pw.CloseWithError(err) // nil is the end of the stream
		return err
	})
	t := s.scratch.Tree(ctx, "")
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
