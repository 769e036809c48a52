package image

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// ImportOptions configure an import.
type ImportOptions struct {
	// Name is the name of a single image, as NAME:TAG; "" takes the name in the file.
	Name string
	// Progress receives the events of the import; may be nil.
	Progress func(phase.Event)
}

// Import adds the images in a file to the store: an OCI image layout, as a directory or a tar, or
// an archive of docker save. Of an index it takes the image for this host's platform. It checks
// layers as [Store.Pull] does. An image that was exported as a built-in image becomes the built-in
// image here if this server has the same recipe.
//
// Errors: Invalid for another kind of file, for images without a name, for other images with the
// name of a built-in image, and as by Pull; Unsupported and TooLarge as by Pull. The images before
// the first that fails stay.
func (s *Store) Import(ctx context.Context, file string, opts ImportOptions) ([]spec.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	work, err := s.workDir(ctx)
	if err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { _ = work.Close() })
	undo.Add(func() { _ = os.RemoveAll(work.Name()) }) // the next Open removes a directory that stays
	defer undo.Clean()
	found, err := archive.Read(ctx, file, work.Name())
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", file, err)
	}
	if opts.Name != "" && len(found) != 1 {
		return nil, sandbox.InvalidField("name", "%s has %d images, a name is for one", file, len(found))
	}
	var images []spec.Image
	for i, f := range found {
		f.Name = cmp.Or(opts.Name, f.Name)
		opts.Progress(phase.Event{Phase: phase.Writing, Done: int64(i), Total: int64(len(found)), Message: f.Name})
		dir := filepath.Join(work.Name(), fmt.Sprintf("image-%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return images, err
		}
		rec, err := s.importImage(ctx, f, dir, opts.Progress)
		if err != nil {
			return images, fmt.Errorf("import %s from %s: %w", cmp.Or(f.Name, "an image"), file, err)
		}
		images = append(images, s.imageOf(rec))
	}
	opts.Progress(phase.Event{Phase: phase.Done})
	return images, nil
}

// importImage adds one image to the store.
func (s *Store) importImage(ctx context.Context, f *archive.Image, dir string, progress func(phase.Event)) (*index.Record, error) {
	if r := s.builtInCalled(f.Name); r != nil {
		return s.importBuiltIn(ctx, f, r, dir, progress)
	}
	name, tag, err := s.importName(f.Name)
	if err != nil {
		return nil, err
	}
	img, err := f.Unpack(ctx, dir)
	if err != nil {
		return nil, err
	}
	config, err := oci.RunConfig(&img.Config.Config)
	if err != nil {
		return nil, err
	}
	ready := make([]chan struct{}, len(img.Manifest.Layers))
	for i := range ready {
		ready[i] = make(chan struct{})
		close(ready[i])
	}
	root, err := s.unpack(ctx, img, "", oci.MaxBytes, dir, ready, progress)
	if err != nil {
		return nil, err
	}
	rec := index.Record{Name: name, Tag: tag, Current: true, Config: config, UpdatedAt: time.Now().UTC()}
	return &rec, s.keepPulled(ctx, root, &rec, img)
}

// importName returns the name and tag of an image that is imported.
func (s *Store) importName(ref string) (name, tag string, err error) {
	parsed, err := ociname.NewTag(ref, ociname.WithDefaultRegistry(reference.Local))
	if err != nil {
		return "", "", sandbox.InvalidField("name", "%.100q is not an image's name; give one like team/app:v1", ref)
	}
	name, tag = parsed.RepositoryStr(), parsed.TagStr()
	if parsed.RegistryStr() != reference.Local {
		return reference.RepositoryName(parsed), tag, nil
	}
	if _, err := s.Recipe(ref); err == nil || strings.HasPrefix(name, reference.BuiltinPrefix) {
		return "", "", sandbox.InvalidField("name", "%.100q is the name of a built-in image; give another", ref)
	}
	return name, tag, nil
}
