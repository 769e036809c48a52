package image

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/compressed"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// importBuiltIn makes an image that another server built from the same recipe the image of the
// recipe here. It treats the layer as a build does, so that the image has the same digest on both
// servers.
//
// Errors: Invalid for another image, and for another version of the recipe.
func (im *importer) importBuiltIn(ctx context.Context, f *archive.Image, r *recipe.Recipe, dir string, progress func(phase.Event)) (*index.Record, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	switch hash := recipe.HashOf(config); {
	case hash == "":
		return nil, sandbox.InvalidField("name", "%.100q is the name of a built-in image, and this image is another; give it another name", f.Name)
	case hash != r.Hash():
		return nil, sandbox.InvalidField("name",
			"this server's %s has another recipe (%.12s) than the image (%.12s); export it with the version of Modbox that runs here, or give it another name", r.Ref(), r.Hash(), hash)
	}
	if config.Architecture != runtime.GOARCH {
		return nil, sandbox.Errorf(sandbox.Unsupported, "the image is for %s, and this machine is %s", config.Architecture, runtime.GOARCH)
	}
	unlock, err := lock.File(ctx, im.files.lockPath("build-"+r.Ref()), func() {
		progress(phase.Event{Phase: phase.Waiting, Message: "a build of " + r.Ref() + " is running"})
	})
	if err != nil {
		return nil, fmt.Errorf("import image %s: %w", r.Ref(), err)
	}
	defer unlock()
	root, err := im.importLayer(ctx, f, r, config, dir, progress)
	if err != nil {
		return nil, err
	}
	return im.builder.keepRecipe(ctx, r, root)
}

// importLayer writes the root filesystem of a built-in image from its one layer.
func (im *importer) importLayer(ctx context.Context, f *archive.Image, r *recipe.Recipe, config *v1.ConfigFile, dir string, progress func(phase.Event)) (*made, error) {
	manifest, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	if f.Plain() {
		return nil, sandbox.Errorf(sandbox.Invalid, "it is an archive of docker save, and a built-in image is imported from what modbox images export wrote")
	}
	if len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
		return nil, sandbox.Errorf(sandbox.Invalid, "it has %d layers, and a built-in image has one", len(manifest.Layers))
	}
	if err := f.WriteBlobs(ctx, manifest, dir); err != nil {
		return nil, err
	}
	layer, err := os.Open(oci.LayerFile(dir, 0))
	if err != nil {
		return nil, err
	}
	defer layer.Close()
	plain, err := compressed.Open(layer)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its layer cannot be read")
	}
	defer plain.Close()
	root, packages, err := r.Write(ctx, plain, dir, nil, phase.Serialised(progress))
	if err != nil {
		return nil, err
	}
	if got, want := root.Layer.DiffID, config.RootFS.DiffIDs[0]; got != want {
		return nil, sandbox.Errorf(sandbox.Invalid, "the layer holds %s, and the image's configuration promises %s", got, want)
	}
	return &made{Result: root, packages: packages}, nil
}

// keepRecipe makes a root filesystem the recipe's image.
func (b *builder) keepRecipe(ctx context.Context, r *recipe.Recipe, root *made) (*index.Record, error) {
	img := r.Image()
	rec := index.Record{
		Name: img.Name, Tag: img.Tag, Current: true, RecipeHash: r.Hash(), Description: img.Description,
		Config: img.Config, MemoryBytes: img.MemoryBytes, ReadinessPort: img.ReadinessPort, TTL: img.TTL,
		UpdatedAt: time.Now().UTC(), Packages: root.packages,
	}
	err := b.keeper.keep(ctx, root, &rec, func(layer rootfs.Blob) (archive.Ref, error) {
		img, err := r.OCIImage(layer)
		if err != nil {
			return archive.Ref{}, err
		}
		return b.layout.Add(img)
	})
	return &rec, err
}
