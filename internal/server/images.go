package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/imagearchive"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
)

// OpenImages opens the image store of a state directory for a command beside the server. It creates
// the store if it is missing, and makes the state directory inaccessible to other users.
func OpenImages(cfg config.Config) (*image.Store, error) {
	if err := statedir.Make(cfg.StateDir); err != nil {
		return nil, err
	}
	opts := localImageOptions(cfg)
	opts.Rows = localRows{cfg}
	return image.Open(filepath.Join(cfg.StateDir, statedir.ImagesDir), images.FS, opts)
}

// ErrNoImage reports that a state directory has no image.
var ErrNoImage = errors.New("no image is built: run modbox images build")

// OpenExistingImages is [OpenImages] for a command that only reads: it does not create the store,
// and reads the descriptors of the images, also while the database cannot be read.
//
// Errors: ErrNoImage when there is no store.
func OpenExistingImages(cfg config.Config) (*image.Store, error) {
	if _, err := os.Stat(filepath.Join(cfg.StateDir, statedir.ImagesDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoImage
	}
	return image.Open(filepath.Join(cfg.StateDir, statedir.ImagesDir), images.FS, localImageOptions(cfg))
}

// DigestsInUse returns a function that lists the digests of the images that the database
// needs: of sandboxes that have not ended, their checkpoints and snapshots. Without
// a database it lists none.
//
// Errors of the function: Unavailable while a sandbox starts, because its image is chosen
// then, but not yet in the database.
func DigestsInUse(cfg config.Config) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (digests []string, err error) {
		st, err := OpenExistingStore(ctx, cfg)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return nil, nil // no server, no sandboxes
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		live, err := st.Sandboxes.LiveSandboxes(ctx)
		if err != nil {
			return nil, err
		}
		for _, sb := range live {
			if sb.ImageDigest == "" {
				return nil, sandbox.Errorf(sandbox.Unavailable, "sandbox %s (%s) is being started; try again when it runs", sb.Name, sb.ID)
			}
		}
		return st.Snapshots.DigestsInUse(ctx)
	}
}

// digestsReleased returns a function that lists the root filesystems that a database used and
// released.
func digestsReleased(cfg config.Config) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (digests []string, err error) {
		st, err := OpenExistingStore(ctx, cfg)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return nil, nil // it may come back
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		return st.Snapshots.DigestsReleased(ctx)
	}
}

// localRows are the images in the database of a state directory, for a command beside the server.
// The database may come into being while the command runs. If it is of another version than this
// program, and no server runs, the next server adopts what the command makes.
//
// Errors: Unsupported if a server of another version runs.
type localRows struct{ cfg config.Config }

// Images implements [index.Rows].
func (r localRows) Images(ctx context.Context) (list []index.Record, err error) {
	st, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return imagerows.New(st.DB).Images(ctx)
}

// ChangeImages implements [index.Rows].
func (r localRows) ChangeImages(ctx context.Context, put []index.Record, remove []string) (err error) {
	st, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return imagerows.New(st.DB).ChangeImages(ctx, put, remove)
}

// StoredBlobs implements [index.Rows].
func (r localRows) StoredBlobs(ctx context.Context, rec *index.Record) (blobs map[v1.Hash][]byte, err error) {
	st, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return imagerows.New(st.DB).StoredBlobs(ctx, rec)
}

func (r localRows) open(ctx context.Context) (*store.Store, error) {
	st, err := OpenExistingStore(ctx, r.cfg)
	code := sandbox.CodeOf(err)
	if code == sandbox.NotFound || code == sandbox.Unsupported && statedir.RunningAddress(r.cfg.StateDir) == "" {
		return nil, index.ErrNoRows
	}
	return st, err
}

// imagesInUse returns a function that lists the images that sandboxes and snapshots need:
// their digests, and the references of sandboxes that start, whose image may not be chosen yet.
func imagesInUse(st *store.Store) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		live, err := st.Sandboxes.LiveSandboxes(ctx)
		if err != nil {
			return nil, err
		}
		used, err := st.Snapshots.DigestsInUse(ctx)
		for _, sb := range live {
			if sb.ImageDigest == "" {
				used = append(used, sb.Image)
			}
		}
		return used, err
	}
}

// openImages opens the image store, and the images in the object store.
func (p *parts) openImages(ctx context.Context, cfg config.Config, registries *registry.Registries, log *slog.Logger, cu *cleanup.Cleanup) (err error) {
	opts := imageOptions(cfg, p.store, registries, log)
	if cfg.Archive.URL != "" {
		stored := storedImagesConfig(cfg)
		stored.Installation, stored.Space = p.instance, p.disk.space
		archives := p.store.Sandboxes.Archives()
		if p.storedImages, err = imagearchive.Open(ctx, stored, imagearchive.Deps{
			Records: imagerows.NewStored(p.store.DB), Used: archives.Any, Needed: archives.Images, Confirm: p.store.Confirm, Owner: p.store.Owner(), Logger: log,
		}); err != nil {
			return err
		}
		cu.Add(func() { _ = p.storedImages.Close() }) // it was flushed
		opts.Away = p.storedImages
	}
	p.images, err = withSpace(p.disk, func() (*image.Store, error) {
		return image.Open(filepath.Join(cfg.StateDir, statedir.ImagesDir), images.FS, opts)
	})
	return err
}

// imageCollectors returns the metrics of images.
func (p *parts) imageCollectors() []prometheus.Collector {
	list := []prometheus.Collector{image.NewCollector(p.images)}
	if p.storedImages != nil {
		list = append(list, p.storedImages.Collectors()...)
	}
	return list
}

// workOnImages checks the images in the background, so that the first sandbox of each image need
// not wait for it, and stores them in the object store.
func (p *parts) workOnImages(ctx context.Context, log *slog.Logger, cu *cleanup.Cleanup) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() {
		if err := p.images.Verifier().All(ctx); err != nil && ctx.Err() == nil {
			log.Error("an image is damaged", "error", err)
		}
	})
	if p.storedImages != nil {
		v := p.images.Verifier()
		work.Go(func() { p.storedImages.Run(ctx, v.Files, v.Check) })
	}
	cu.Add(func() {
		cancel()
		work.Wait()
	})
}

// imageReady reports whether sandboxes can be made without naming an image.
func (p *parts) imageReady(ctx context.Context) error {
	list, err := p.images.List(ctx)
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.IsDefault && i.Digest != "" {
			return nil
		}
	}
	return errors.New("the default image is not built: run modbox images build")
}
