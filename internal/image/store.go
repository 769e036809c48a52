package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/chain"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/integrity"
	"github.com/modbox/modbox/internal/image/lease"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/sizes"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/sandbox"
)

// Store holds images in a directory. It is safe for concurrent use, and several
// processes may each open the same directory.
//
// Its parts do the work: names finds the images of references, verifier checks files, sizes measures, Removal
// removes, asker asks registries about stored images, cache finds images by key, and committer, puller,
// builder and importer add images, which keeper publishes. A part calls only parts that [Open] makes before
// it.
type Store struct {
	index      *index.Table
	layout     archive.Layout // the OCI images
	leases     *lease.Leases
	registries *remote.Client
	scratch    *rootfs.Scratch
	files      *files
	names      *names
	verifier   *verify.Verifier
	sizes      *sizes.Meter
	removal    *Removal
	asker      *asker
	cache      *cache
	committer  *committer
	puller     *puller
	builder    *builder
	importer   *importer
}

// Options are the optional parameters of a [Store].
type Options struct {
	// Bootstrapper makes the files of images; nil is [Debian] with the host's programs.
	Bootstrapper recipe.Bootstrapper
	// Logger logs the work in the background; nil is silence.
	Logger *slog.Logger
	// DefaultRegistry is the registry of names without a registry that the store does not have, such
	// as "docker.io"; "" is none.
	DefaultRegistry string
	// Remote configures how to reach registries and how to sign in to them.
	Remote remote.Options
	// RecheckInterval is the time after which the registry of a tag is asked again; 0 is never.
	RecheckInterval time.Duration
	// MaxDisk bounds the store: the store trims itself after each addition, see [Removal.Trim]; 0 is no
	// limit.
	MaxDisk int64
	// MinFree is the number of bytes that must stay free on the disk of the store: a pull that would
	// leave less is refused.
	MinFree int64
	// InUse returns the images that Trim, TrimBuildCache and PruneFor must keep; needed with MaxDisk.
	// Without it TrimBuildCache removes nothing, and PruneFor fails. The store calls it without a lock, and
	// learns of images that come into use since by [Store.Hold] and [Store.Resolve].
	InUse func(context.Context) ([]string, error)
	// Shared says that several servers use the directory. Each use of an image is then written to its file, which costs some
	// writes for each sandbox, so that no other server removes the image meanwhile.
	Shared bool
	// Released returns the digests of root filesystems that the database had and gave up: Commit made
	// them without a name, and nothing needs them. Root filesystems in neither list are lost, see
	// [Removal.Lost]. Without it none are. The store calls it without a lock.
	Released func(context.Context) ([]string, error)
	// LostAge and LostBytes bound the lost images; 0 is no limit.
	LostAge   time.Duration
	LostBytes int64
	// Catalogued returns the references in the catalogues of all workspaces; nil is none.
	// The store calls it without a lock.
	Catalogued func(context.Context) ([]string, error)
	// ChainBytes is the least size of compressed layers of pulled images that become a root filesystem of their own,
	// see package chain; 0 is its default.
	ChainBytes int64
	// Rows are the index in the database of the server. Without them, or while there is no
	// database, the descriptors in the directory are the index.
	Rows index.Rows
	// Away has the files of images that are in an object store; nil is none.
	Away verify.Away
	// Memory bounds the memory for the names and nodes of files of all images in progress; 0 is a
	// sixteenth of the machine's, and 512 MiB at least.
	Memory int64
}

// partsMax bounds the bytes of the blobs of failed pulls, and partsShare makes that a part of
// [Options.MaxDisk].
const partsMax, partsShare = 16 << 30, 8

// Open returns the store in dir, which it creates when it is missing. Each directory of recipes is
// the recipe of a built-in image (images.FS has ours). It removes the files of interrupted builds
// and reads no image: see [Store.Verifier].
//
// Errors: Invalid for an invalid recipe; otherwise the file system's.
func Open(dir string, recipes fs.FS, opts Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	if opts.MaxDisk > 0 && opts.InUse == nil {
		return nil, errors.New("open image store: MaxDisk needs InUse")
	}
	if opts.Bootstrapper == nil {
		opts.Bootstrapper = recipe.Debian{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	list, err := recipe.LoadAll(recipes)
	if err != nil {
		return nil, fmt.Errorf("open image store %s: %w", dir, err)
	}
	s, err := open(&files{dir: dir, log: opts.Logger}, list, opts)
	if err != nil {
		return nil, fmt.Errorf("open image store %s: %w", dir, err)
	}
	return s, nil
}

// open makes the store's directories, its index and its parts, and removes the files of builds whose
// process has ended.
func open(f *files, recipes []*recipe.Recipe, opts Options) (*Store, error) {
	pulls, used := filepath.Join(f.dir, "pulls"), filepath.Join(f.dir, "used")
	layout, err := archive.OpenLayout(filepath.Join(f.dir, "layout"))
	if err != nil {
		return nil, err
	}
	checked, err := integrity.Open(filepath.Join(f.dir, "verified"), opts.Logger)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{f.imagesDir(), f.tmpDir(), pulls, used, filepath.Join(f.dir, "locks")} {
		if err := durable.MkdirAll(dir); err != nil {
			return nil, err
		}
	}
	ctx := context.Background() // the locks are short
	if err := f.removeLeftovers(ctx); err != nil {
		return nil, err
	}
	mostParts := int64(partsMax)
	if opts.MaxDisk > 0 {
		mostParts = min(mostParts, opts.MaxDisk/partsShare)
	}
	downloads := remote.NewDownloads(pulls, mostParts, opts.Logger)
	if err := f.removeLocks(); err != nil {
		return nil, err
	}
	table, err := index.Open(ctx, index.Options{
		Dir: f.dir, Lock: f.lockPath("index"), Images: f.imagesDir(), Layout: layout, Rows: opts.Rows, Log: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	precision := usedEvery / 2
	if opts.Shared {
		precision = 0
	}
	s := &Store{
		index: table, layout: layout, leases: lease.New(used, precision), registries: remote.New(opts.Remote),
		scratch: rootfs.NewScratch(f.tmpDir(), opts.Memory), files: f,
		names:    &names{index: table, recipes: recipes, defaultRegistry: opts.DefaultRegistry},
		verifier: verify.New(verify.Files{Index: table, Layout: layout, Path: f.erofsPath}, verify.Options{Work: f.workDir, Checked: checked, Away: opts.Away}),
		sizes:    sizes.NewMeter(table, layout),
	}
	s.removal = &Removal{
		index: table, names: s.names, sizes: s.sizes, leases: s.leases, layout: layout, files: f, downloads: downloads, verifier: s.verifier,
		maxDisk: opts.MaxDisk, lostAge: opts.LostAge, lostBytes: opts.LostBytes,
		inUse: opts.InUse, released: opts.Released, catalogued: opts.Catalogued, log: opts.Logger,
	}
	s.connect(downloads, opts)
	if err := s.removal.collectChains(ctx); err != nil { // of pulls that a crash interrupted
		opts.Logger.Warn("the remains of pulls cannot be removed", "error", err)
	}
	return s, nil
}

// connect makes the parts that add images.
func (s *Store) connect(downloads *remote.Downloads, opts Options) {
	s.asker = &asker{names: s.names, index: s.index, registries: s.registries, recheck: opts.RecheckInterval, log: opts.Logger}
	s.cache = &cache{index: s.index, names: s.names, files: s.files, verifier: s.verifier, leases: s.leases}
	k := &keeper{index: s.index, names: s.names, files: s.files, layout: s.layout, verifier: s.verifier, removal: s.removal, leases: s.leases}
	s.committer = &committer{
		index: s.index, names: s.names, files: s.files, layout: s.layout, verifier: s.verifier, keeper: k, leases: s.leases,
		scratch: s.scratch, log: opts.Logger,
	}
	s.puller = &puller{
		registries: s.registries, downloads: downloads, index: s.index, names: s.names, files: s.files, layout: s.layout, sizes: s.sizes,
		keeper: k, space: sizes.Space{Dir: s.files.dir, Layout: s.layout, MaxDisk: opts.MaxDisk, MinFree: opts.MinFree},
		maker: &chain.Maker{Roots: &chains{keeper: k, committer: s.committer}, Scratch: s.scratch, Least: opts.ChainBytes},
	}
	s.builder = &builder{
		bootstrap: opts.Bootstrapper, index: s.index, names: s.names, files: s.files, layout: s.layout, verifier: s.verifier, keeper: k,
		puller: s.puller, scratch: s.scratch,
	}
	s.importer = &importer{names: s.names, files: s.files, builder: s.builder, puller: s.puller, keeper: k}
}

// Removal returns the removal of images that nothing needs.
func (s *Store) Removal() *Removal { return s.removal }

// ByID returns the image with the id, which need not be built. Errors: NotFound.
func (s *Store) ByID(ctx context.Context, id sandbox.ImageID) (spec.Image, error) {
	images, err := s.names.list(ctx)
	if err != nil {
		return spec.Image{}, err
	}
	for _, img := range images {
		if img.ID == id {
			return img, nil
		}
	}
	return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "there is no image with id %q; %s", id, known(images))
}

// Recipes returns the built-in recipes, the recipe of the default image first.
func (s *Store) Recipes() []*recipe.Recipe { return slices.Clone(s.names.recipes) }

// Resolve returns the image that ref names and the absolute path of its root filesystem. It accepts
// name, name:tag, both without "modbox/", name@digest, and a digest alone; "" is the default image.
// The first time since the host booted that a Store sees a file, it checks the file against its
// digest, which takes about a second per gigabyte.
//
// Errors: Invalid for an invalid reference; NotFound for an image that is missing or not built,
// with advice; Unavailable when the file is damaged.
func (s *Store) Resolve(ctx context.Context, ref string) (spec.Image, string, error) {
	ix, err := s.index.Load()
	if err != nil {
		return spec.Image{}, "", err
	}
	rec, err := s.names.find(ctx, ix, ref)
	if err != nil {
		return spec.Image{}, "", err
	}
	if err := s.verifier.Verify(ctx, rec); err != nil {
		return spec.Image{}, "", err
	}
	if err := s.leases.Note(rec.Digest); err != nil {
		return spec.Image{}, "", err
	}
	return s.names.imageOf(rec), s.files.erofsPath(rec.Digest), nil
}

// Packages returns the packages in the image that ref names, as in [Store.Resolve]. Errors:
// Invalid, NotFound.
func (s *Store) Packages(ctx context.Context, ref string) ([]recipe.Package, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	rec, err := s.names.find(ctx, ix, ref)
	if err != nil {
		return nil, err
	}
	return slices.Clone(rec.Packages), nil
}

// Runtimes returns the built-in images that describe themselves as runtimes, built or not, the
// default first and then by name.
func (s *Store) Runtimes(ctx context.Context) ([]spec.Runtime, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	var list []spec.Runtime
	for _, r := range s.names.recipes {
		if r.Runtime() == nil {
			continue
		}
		rt := *r.Runtime()
		rec := ix.Current(r.Ref())
		if rec != nil {
			rt.Digest, rt.SizeBytes, rt.CreatedAt = rec.Digest, rec.SizeBytes, rec.CreatedAt
		}
		rt.Source = s.names.source(r)
		// An image that was imported under its name in the registry is taken, see adopt.
		if src := ix.Current(rt.Source); rt.Source != "" && rec == nil && s.names.defaultRegistry == "" && (src == nil || src.Readers() != nil) {
			rt.Missing = "the setting images.default_registry is empty, so the server has no registry to pull " + rt.Source + " from"
		}
		list = append(list, rt)
	}
	return list, nil
}
