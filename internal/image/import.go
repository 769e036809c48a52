package image

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/phase"
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

// importer makes images of files that other programs and servers wrote.
type importer struct {
	names   *names
	files   *files
	builder *builder
	puller  *puller
	keeper  *keeper
}

// importFile is [Store.Import].
func (im *importer) importFile(ctx context.Context, file string, opts ImportOptions) ([]spec.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	work, undo, err := im.files.workDir(ctx)
	if err != nil {
		return nil, err
	}
	defer undo.Clean()
	found, err := archive.Read(ctx, file, work)
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
		dir := filepath.Join(work, fmt.Sprintf("image-%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return images, err
		}
		rec, err := im.importImage(ctx, f, dir, opts.Progress)
		if err != nil {
			return images, fmt.Errorf("import %s from %s: %w", cmp.Or(f.Name, "an image"), file, err)
		}
		images = append(images, im.names.imageOf(rec))
	}
	opts.Progress(phase.Event{Phase: phase.Done})
	return images, nil
}

// importImage adds one image to the store.
func (im *importer) importImage(ctx context.Context, f *archive.Image, dir string, progress func(phase.Event)) (*index.Record, error) {
	if r := im.names.builtInCalled(f.Name); r != nil {
		return im.importBuiltIn(ctx, f, r, dir, progress)
	}
	name, tag, err := im.names.importName(f.Name)
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
	files, err := im.puller.unpack(ctx, img, "", oci.MaxBytes, dir, ready, progress)
	defer im.puller.settle(ctx, &files)
	if err != nil {
		return nil, err
	}
	rec := index.Record{Name: name, Tag: tag, Current: true, Config: config, UpdatedAt: time.Now().UTC()}
	return &rec, im.keeper.keepPulled(ctx, &files, &rec, img, dir)
}
