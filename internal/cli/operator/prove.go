package operator

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/doctor/prove"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
)

// provenImage is the image for proofs, if it is built.
const provenImage = "modbox/base:latest"

// proveHere tries on this machine what the documentation promises, with an image of the server.
func proveHere(ctx context.Context, cfg config.Config, seen func(doctor.Result)) []doctor.Result {
	untried := func(detail, fix string) []doctor.Result {
		r := doctor.Result{Name: "proof", Status: doctor.Untried, Detail: "not tried: " + detail, Fix: fix}
		if seen != nil {
			seen(r)
		}
		return []doctor.Result{r}
	}
	if cfg.Worker.Listen != "" {
		return untried("the sandboxes of this server run on workers", "run it on the machine of a worker, without worker.listen")
	}
	ref, err := imageToProve(ctx, cfg)
	var program string
	if err == nil {
		program, err = os.Executable()
	}
	if err != nil {
		return untried(err.Error(), "build an image: modbox images build modbox/base")
	}
	return prove.Run(ctx, prove.Options{
		Program: program, StateDir: cfg.StateDir, RunDir: cfg.RunDir, Images: filepath.Join(cfg.StateDir, statedir.ImagesDir), Image: ref,
	}, seen)
}

// proveCluster proves the workers of a running server, with an image, "" for the default of the workspace. A terminal that is closed ends it as
// Ctrl-C does, so that it undoes what it did.
func proveCluster(ctx context.Context, env *base.Env, image string, seen func(doctor.Result)) ([]doctor.Result, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	c, err := env.Client()
	if err != nil {
		return nil, err
	}
	return prove.RunCluster(ctx, prove.ClusterOptions{API: c, Image: image}, seen), nil
}

// imageToProve returns provenImage, or else the smallest image with a name.
func imageToProve(ctx context.Context, cfg config.Config) (string, error) {
	st, err := server.OpenExistingImages(cfg)
	if err != nil {
		return "", err
	}
	best, err := smallestImage(ctx, st, func(i spec.Image) bool { return i.Ref() == provenImage })
	if err == nil && best == nil {
		best, err = smallestImage(ctx, st, func(i spec.Image) bool { return i.Name != "" })
	}
	switch {
	case err != nil:
		return "", err
	case best == nil:
		return "", server.ErrNoImage
	}
	return best.Ref(), nil
}

// smallestImage returns the smallest built image that fits; nil for none.
func smallestImage(ctx context.Context, st *image.Store, fits func(spec.Image) bool) (*spec.Image, error) {
	list, err := st.List(ctx)
	if err != nil {
		return nil, err
	}
	var smallest *spec.Image
	for i := range list {
		if list[i].Digest != "" && fits(list[i]) && (smallest == nil || list[i].SizeBytes < smallest.SizeBytes) {
			smallest = &list[i]
		}
	}
	return smallest, nil
}
