package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/singleflight"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/integrity"
	"github.com/modbox/modbox/internal/image/lease"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// Store holds images in a directory. It is safe for concurrent use, and several
// processes may each open the same directory.
type Store struct {
	dir       string
	bootstrap recipe.Bootstrapper
	log       *slog.Logger
	// See Options.
	defaultRegistry string
	recheck         time.Duration
	registries      *remote.Client
	downloads       *remote.Downloads
	layout          archive.Layout // the OCI images
	index           *index.Table
	leases          *lease.Leases
	checked         *integrity.Records // the root filesystems that were verified since the host booted
	// The bounds of the store; see Options.
	maxDisk int64
	minFree int64
	inUse   func(context.Context) ([]string, error)
	// released, lostAge and lostBytes are Options.Released, LostAge and LostBytes.
	released  func(context.Context) ([]string, error)
	lostAge   time.Duration
	lostBytes int64
	// catalogued is Options.Catalogued.
	catalogued func(context.Context) ([]string, error)
	recipes    []*recipe.Recipe // the built-in recipes, the default first
	scratch    *rootfs.Scratch

	mu       sync.Mutex
	verified map[string]bool        // guarded by mu; digests whose file was checked by this Store
	owned    ownedCache             // guarded by mu
	layers   map[v1.Hash][]blobSize // guarded by mu; of the OCI images with those manifests

	verifying singleflight.Group // by digest
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
	// MaxDisk bounds the store: the store trims itself after each addition, see [Store.Trim]; 0 is no
	// limit.
	MaxDisk int64
	// MinFree is the number of bytes that must stay free on the disk of the store: a pull that would
	// leave less is refused.
	MinFree int64
	// InUse returns the images that Trim, TrimBuildCache and PruneFor must keep; needed with MaxDisk.
	// Without it TrimBuildCache removes nothing, and PruneFor fails. The store calls it without a lock, and
	// learns of images that come into use since by [Store.Hold] and [Store.Resolve].
	InUse func(context.Context) ([]string, error)
	// Released returns the digests of root filesystems that the database had and gave up: Commit made
	// them without a name, and nothing needs them. Root filesystems in neither list are lost, see
	// [Store.Lost]. Without it none are. The store calls it without a lock.
	Released func(context.Context) ([]string, error)
	// LostAge and LostBytes bound the lost images; 0 is no limit.
	LostAge   time.Duration
	LostBytes int64
	// Catalogued returns the references in the catalogues of all workspaces; nil is none.
	// The store calls it without a lock.
	Catalogued func(context.Context) ([]string, error)
	// Rows are the index in the database of the server. Without them, or while there is no
	// database, the descriptors in the directory are the index.
	Rows index.Rows
	// Memory bounds the memory for the names and nodes of files of all images in progress; 0 is a
	// sixteenth of the machine's, and 512 MiB at least.
	Memory int64
}

// partsMax bounds the bytes of the blobs of failed pulls, and partsShare makes that a part of
// [Options.MaxDisk].
const partsMax, partsShare = 16 << 30, 8

// Open returns the store in dir, which it creates when it is missing. Each directory of recipes is
// the recipe of a built-in image (images.FS has ours). It removes the files of interrupted builds
// and reads no image: see [Store.Verify].
//
// Errors: Invalid for an invalid recipe; otherwise the file system's.
func Open(dir string, recipes fs.FS, opts Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	s := &Store{
		dir: dir, bootstrap: opts.Bootstrapper, log: opts.Logger, verified: map[string]bool{}, layers: map[v1.Hash][]blobSize{},
		defaultRegistry: opts.DefaultRegistry, recheck: opts.RecheckInterval, maxDisk: opts.MaxDisk, minFree: opts.MinFree, inUse: opts.InUse, catalogued: opts.Catalogued,
		released: opts.Released, lostAge: opts.LostAge, lostBytes: opts.LostBytes,
	}
	s.registries = remote.New(opts.Remote)
	s.scratch = rootfs.NewScratch(s.tmpDir(), opts.Memory)
	if s.maxDisk > 0 && s.inUse == nil {
		return nil, errors.New("open image store: MaxDisk needs InUse")
	}
	if s.bootstrap == nil {
		s.bootstrap = recipe.Debian{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.recipes, err = recipe.LoadAll(recipes); err != nil {
		return nil, fmt.Errorf("open image store %s: %w", dir, err)
	}
	if err := s.prepare(opts.Rows); err != nil {
		return nil, fmt.Errorf("open image store %s: %w", dir, err)
	}
	return s, nil
}

// prepare makes the store's directories and its index, and removes the files of builds whose
// process has ended.
func (s *Store) prepare(rows index.Rows) (err error) {
	pulls, used := filepath.Join(s.dir, "pulls"), filepath.Join(s.dir, "used")
	s.leases = lease.New(used, usedEvery/2)
	if s.layout, err = archive.OpenLayout(filepath.Join(s.dir, "layout")); err != nil {
		return err
	}
	if s.checked, err = integrity.Open(filepath.Join(s.dir, "verified"), s.log); err != nil {
		return err
	}
	for _, dir := range []string{s.imagesDir(), s.tmpDir(), pulls, used, filepath.Join(s.dir, "locks")} {
		if err := durable.MkdirAll(dir); err != nil {
			return err
		}
	}
	ctx := context.Background() // the locks are short
	if err := s.removeLeftovers(ctx); err != nil {
		return err
	}
	mostParts := int64(partsMax)
	if s.maxDisk > 0 {
		mostParts = min(mostParts, s.maxDisk/partsShare)
	}
	s.downloads = remote.NewDownloads(pulls, mostParts, s.log)
	if err := s.removeLocks(); err != nil {
		return err
	}
	s.index, err = index.Open(ctx, index.Options{
		Dir: s.dir, Lock: s.lockPath("index"), Images: s.imagesDir(), Layout: s.layout, Rows: rows, Log: s.log,
	})
	return err
}

func (s *Store) imagesDir() string { return filepath.Join(s.dir, "images") }
func (s *Store) tmpDir() string    { return filepath.Join(s.dir, "tmp") }

func (s *Store) lockPath(what string) string {
	return filepath.Join(s.dir, "locks", strings.NewReplacer("/", "_", ":", "_", "@", "_").Replace(what)+".lock")
}

// erofsPath returns the path of the root filesystem with a digest.
func (s *Store) erofsPath(digest string) string {
	return filepath.Join(s.imagesDir(), strings.TrimPrefix(digest, "sha256:")+".erofs")
}

// List returns the built-in images, built or not, the default first, and then the others, by
// reference. An image that is not built has no digest.
func (s *Store) List(ctx context.Context) ([]spec.Image, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	var images []spec.Image
	for _, r := range s.recipes {
		images = append(images, s.entry(r, ix.Current(r.Ref())))
	}
	builtin := len(images)
	for i := range ix.Images {
		if rec := &ix.Images[i]; rec.Current && s.recipe(rec.Ref()) == nil {
			images = append(images, rec.Image())
		}
	}
	slices.SortFunc(images[builtin:], func(a, b spec.Image) int { return strings.Compare(a.Ref(), b.Ref()) })
	return images, nil
}

// entry returns the description of a built-in image; rec is nil when it is not built.
func (s *Store) entry(r *recipe.Recipe, rec *index.Record) spec.Image {
	img := r.Image()
	if rec != nil {
		img = rec.Image()
		img.IsDefault = r.Default()
	}
	img.Builtin = true
	return img
}

// imageOf returns the description of a record's image.
func (s *Store) imageOf(rec *index.Record) spec.Image {
	if r := s.recipe(rec.Ref()); r != nil {
		return s.entry(r, rec)
	}
	return rec.Image()
}

func (s *Store) recipe(ref string) *recipe.Recipe {
	for _, r := range s.recipes {
		if r.Ref() == ref {
			return r
		}
	}
	return nil
}

// ByID returns the image with the id, which need not be built. Errors: NotFound.
func (s *Store) ByID(ctx context.Context, id sandbox.ImageID) (spec.Image, error) {
	images, err := s.List(ctx)
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
func (s *Store) Recipes() []*recipe.Recipe { return slices.Clone(s.recipes) }

// Recipe returns the built-in recipe that a reference names, written as for
// [Store.Resolve]. Errors: NotFound, Invalid.
func (s *Store) Recipe(ref string) (*recipe.Recipe, error) {
	parsed, err := reference.Parse(s.orDefault(ref), s.defaultRegistry)
	if err != nil {
		return nil, err
	}
	for _, n := range parsed.Names {
		if r := s.recipe(n); r != nil {
			return r, nil
		}
	}
	var names []string
	for _, r := range s.recipes {
		names = append(names, r.Ref())
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no recipe for %q; there are %s", ref, strings.Join(names, ", "))
}

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
	rec, err := s.find(ctx, ix, ref)
	if err != nil {
		return spec.Image{}, "", err
	}
	if err := s.verify(ctx, rec); err != nil {
		return spec.Image{}, "", err
	}
	if err := s.leases.Note(rec.Digest); err != nil {
		return spec.Image{}, "", err
	}
	return s.imageOf(rec), s.erofsPath(rec.Digest), nil
}

// Packages returns the packages in the image that ref names, as in [Store.Resolve]. Errors:
// Invalid, NotFound.
func (s *Store) Packages(ctx context.Context, ref string) ([]recipe.Package, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	rec, err := s.find(ctx, ix, ref)
	if err != nil {
		return nil, err
	}
	return slices.Clone(rec.Packages), nil
}

// orDefault returns ref, or the reference of the default image when it is empty.
func (s *Store) orDefault(ref string) string {
	if ref == "" && len(s.recipes) > 0 {
		return s.recipes[0].Ref()
	}
	return ref
}

// find returns the record that ref means.
func (s *Store) find(ctx context.Context, ix *index.Index, ref string) (*index.Record, error) {
	parsed, err := reference.Parse(s.orDefault(ref), s.defaultRegistry)
	if err != nil {
		return nil, err
	}
	if parsed.Digest != "" {
		if rec := ix.ByDigest(parsed.Digest, parsed.Names...); rec != nil {
			return rec, nil
		}
	} else {
		for _, n := range parsed.Names {
			if rec := ix.Current(n); rec != nil {
				return rec, nil
			}
			if r := s.recipe(n); r != nil {
				return nil, sandbox.Errorf(sandbox.NotFound, "image %s is not built yet; build it with: modbox images build %s", n, r.Image().Name)
			}
		}
	}
	return nil, s.unknown(ctx, ref)
}

// unknown returns the error for a reference that names no image.
func (s *Store) unknown(ctx context.Context, ref string) error {
	images, err := s.List(ctx)
	if err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no image %q; %s", ref, known(images))
}

// known lists the available images for a message.
func known(images []spec.Image) string {
	if len(images) == 0 {
		return "there are none"
	}
	var names []string
	for _, img := range images {
		if img.Readers != nil {
			continue // not for all workspaces
		}
		n := img.Ref()
		if img.Digest == "" {
			n += " (not built; build it with: modbox images build " + img.Name + ")"
		}
		names = append(names, n)
	}
	return "there are " + strings.Join(names, ", ")
}

// verify checks the record's file against its digest, unless a Store of this directory did since the
// host booted. It moves a damaged file aside, so that nothing uses it.
func (s *Store) verify(ctx context.Context, rec *index.Record) error {
	name := s.erofsPath(rec.Digest)
	s.mu.Lock()
	done := s.verified[rec.Digest]
	s.mu.Unlock()
	if done && untouched(name, rec) {
		return nil
	}
	_, err, _ := s.verifying.Do(rec.Digest, func() (any, error) {
		// All waiters share the result, so the context of none of them ends the work.
		err := s.checked.Check(rec.Digest, name, func() (string, error) {
			digest, _, err := rootfs.Digest(context.WithoutCancel(ctx), name, rec.Mark)
			return digest, err
		})
		if damaged := (*integrity.DamagedError)(nil); errors.As(err, &damaged) {
			err = errors.Join(err, os.Rename(name, name+".damaged"))
		}
		s.mu.Lock()
		s.verified[rec.Digest] = err == nil
		s.mu.Unlock()
		return nil, err
	})
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the root filesystem of image %s is missing or damaged; build it again with: modbox images build %s", rec.Ref(), rec.Name)
	}
	return nil
}

// untouched reports whether the record's file has the size and time with which it was written. That
// is no proof, but finds every ordinary accident at no cost.
func untouched(name string, rec *index.Record) bool {
	info, err := os.Stat(name)
	return err == nil && info.Size() == rec.SizeBytes && info.ModTime().Equal(rec.ModTime())
}

// Verify checks every root filesystem against its digest, unless a Store of this directory did since
// the host booted, so that the first Resolve of each is quick. It returns an error with code Unavailable for each damaged image, joined; the others can
// be used.
func (s *Store) Verify(ctx context.Context) error {
	ix, err := s.index.Load()
	if err != nil {
		return err
	}
	var errs []error
	for i := range ix.Images {
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, s.verify(ctx, &ix.Images[i]))
	}
	errs = append(errs, s.checked.Prune(func(digest string) bool { return ix.ByDigest(digest) != nil }))
	return errors.Join(errs...)
}

// Runtimes returns the built-in images that describe themselves as runtimes, built or not, the
// default first and then by name.
func (s *Store) Runtimes(ctx context.Context) ([]spec.Runtime, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	var list []spec.Runtime
	for _, r := range s.recipes {
		if r.Runtime() == nil {
			continue
		}
		rt := *r.Runtime()
		if rec := ix.Current(r.Ref()); rec != nil {
			rt.Digest, rt.SizeBytes, rt.CreatedAt = rec.Digest, rec.SizeBytes, rec.CreatedAt
		}
		list = append(list, rt)
	}
	return list, nil
}
