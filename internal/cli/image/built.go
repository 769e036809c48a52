package image

import (
	"context"
	"errors"
	"slices"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/server"
)

// openLocal loads the configuration and opens the images of this machine.
func openLocal(env *base.Env, l *base.LocalFlags) (config.Config, *image.Store, error) {
	cfg, err := l.Load(env)
	if err != nil {
		return cfg, nil, err
	}
	st, err := server.OpenImages(cfg)
	return cfg, st, err
}

// BuiltImages reports by reference whether an image is built: the images of "modbox images build"
// and all other images on this machine, because sandboxes can also start from imported images.
func BuiltImages(ctx context.Context, cfg config.Config) (map[string]bool, error) {
	st, err := server.OpenExistingImages(cfg)
	if errors.Is(err, server.ErrNoImage) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	recipes, err := chooseRecipes(st, nil)
	if err != nil {
		return nil, err
	}
	list, err := st.List(ctx)
	if err != nil {
		return nil, err
	}
	built := map[string]bool{}
	for _, i := range list {
		if i.Digest != "" {
			built[i.Ref()] = true
		}
	}
	for _, r := range recipes {
		built[r.Ref()] = slices.ContainsFunc(list, func(i spec.Image) bool { return i.Ref() == r.Ref() && i.Digest != "" })
	}
	return built, nil
}
