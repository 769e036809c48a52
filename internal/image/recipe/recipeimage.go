package recipe

import (
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"context"
	"io"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/rootfs"
)

// recipeMark begins the line of an image's history that names its recipe.
const recipeMark = "modbox recipe "

// HashOf returns the hash of the recipe from which an image was built, by its
// configuration; "" for an image that was not built from a recipe.
func HashOf(config *v1.ConfigFile) string {
	if len(config.History) != 1 {
		return ""
	}
	hash, ok := strings.CutPrefix(config.History[0].CreatedBy, recipeMark)
	if !ok {
		return ""
	}
	return hash
}

// OCIImage returns the OCI image of the recipe with its layer.
func (r *Recipe) OCIImage(layer rootfs.Blob) (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{
		Layer:   layer.Layer(),
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: recipeMark + r.Hash()},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: r.date}
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{
		Entrypoint: r.image.Config.Entrypoint, Cmd: r.image.Config.Cmd, Env: r.image.Config.Env,
		WorkingDir: r.image.Config.WorkingDir, User: r.image.Config.User,
		Labels: map[string]string{
			specs.AnnotationTitle:       r.image.Name,
			specs.AnnotationDescription: r.image.Description,
		},
	}
	return mutate.ConfigFile(img, config)
}

// recipeLimits bound a recipe only against accidents.
var recipeLimits = rootfs.Limits{Bytes: 256 << 30, Entries: 10_000_000}

// Write reads the files of the recipe's image as a tar stream and writes them into a directory as a
// root filesystem. It returns also the packages that the image lists. The memory of a nil tree is
// not counted. Errors: as of [rootfs.Write].
func (r *Recipe) Write(ctx context.Context, files io.Reader, dir string, tree *rootfs.Tree, progress func(phase.Event)) (rootfs.Result, []Package, error) {
	root, err := rootfs.Write(ctx, files, rootfs.Spec{
		Dir: dir, Date: r.date, FutureDated: r.spec.FutureDated, Limits: recipeLimits, Tree: tree, Collect: packagesPath, CollectMax: packagesMax,
		Progress: func(n int64) { progress(phase.Event{Phase: phase.Writing, Done: n, Message: "files"}) },
	})
	return root, parsePackages(root.Collected), err
}
