package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// The methods of the store that a single part implements.

// List returns the built-in images, built or not, the default first, and then the others, by
// reference. An image that is not built has no digest.
func (s *Store) List(ctx context.Context) ([]spec.Image, error) {
	return s.names.list(ctx)
}

// Recipe returns the built-in recipe that a reference names, written as for
// [Store.Resolve]. Errors: NotFound, Invalid.
func (s *Store) Recipe(ref string) (*recipe.Recipe, error) {
	return s.names.builtIn(ref)
}

// Built returns the image that a workspace has built as ref. Errors: NotFound.
func (s *Store) Built(ctx context.Context, owner sandbox.WorkspaceID, ref string) (spec.Image, error) {
	return s.names.built(ctx, owner, ref)
}

// Lookup returns the known facts about the image that ref names, as [Store.Resolve] does, also for
// a built-in image that is not built yet, and for an image that a registry may have: without a
// digest but the digest in ref. Errors: Invalid, NotFound.
func (s *Store) Lookup(ctx context.Context, ref string) (spec.Image, error) {
	return s.names.lookup(ctx, ref)
}

// Verifier returns the checks of the files of the images, and the files.
func (s *Store) Verifier() *verify.Verifier { return s.verifier }

// Owned returns the disk space of a workspace's builds: of the images with a name, and of the
// cache, which is cached layers, images that lost their names, and the images that
// [Store.CachedFor] returned to the workspace, even if other workspaces use them. It counts root
// filesystems, and the compressed layers that no image of other workspaces needs.
func (s *Store) Owned(owner sandbox.WorkspaceID) (images, left int64, err error) {
	have, err := s.sizes.Of(owner)
	return have.Images, have.Left, err
}

// EvictBuildCache removes images of a workspace's build cache, least recently used first, until add bytes
// more are free, and reports whether they are. It removes nothing if the whole removable cache is
// too small.
func (s *Store) EvictBuildCache(ctx context.Context, owner sandbox.WorkspaceID, add int64) (bool, error) {
	return s.removal.evictBuildCache(ctx, owner, add)
}

// Stale reports whether [Store.Ensure] would ask the registry about a reference: whether its tag
// has moved, or whether the workspace may use the image.
func (s *Store) Stale(ref string, who registry.Puller) bool {
	return s.asker.stale(ref, who)
}

// Pull adds the image under a reference in a registry to the store and to the reference: the image
// for the host's platform if it is an index, every layer checked against its digests. Pull always
// asks about a tag; it does not download blobs again that the store has. Concurrent pulls of a
// reference, in this process and others, share a pull; images of a repository share their common
// blobs; and a pull continues the downloads of a pull that ended early.
//
// Errors: Invalid for an invalid reference, and for an image whose layers are malformed or hostile;
// NotFound when no registry has it; Forbidden when the registry wants other credentials;
// Unsupported for an image of another platform or kind; TooLarge; Timeout for a registry that
// stalls, and Unavailable for a registry that cannot be reached, limits pulls, or sends invalid
// answers. They include the message of the registry. On any error the store is unchanged.
func (s *Store) Pull(ctx context.Context, ref string, opts PullOptions) (spec.Image, error) {
	return s.puller.pullAs(ctx, ref, opts)
}

// Stage applies a layer to a base and writes the merged root filesystem. [Staged.Publish] makes it
// an image of the store, with an OCI image that has the layers of the base and this layer. The same
// layer over the same base gives the same digest; if the store has that image already, with the
// same configuration, Publish returns it.
//
// Errors: NotFound for an unknown base; Invalid for a layer that is malformed or hostile, naming
// the entry, and for an invalid name; TooLarge for a layer beyond the limits; Unavailable for a
// damaged base. After a crash the next Open removes the files. Safe for concurrent use.
func (s *Store) Stage(ctx context.Context, req CommitRequest) (*Staged, error) {
	return s.committer.stageCommit(ctx, req)
}

// StageBuilt prepares an image for a workspace: the files of a root filesystem with a
// configuration. [Staged.Publish] moves the name from the image that has it.
//
// Errors: NotFound for the base; Invalid for a configuration that no program can run with.
func (s *Store) StageBuilt(ctx context.Context, req FinishRequest) (*Staged, error) {
	return s.committer.stageBuilt(ctx, req)
}

// Hold protects an image from removal by any process until release or the end of this process. The
// release counts as a use. Errors: NotFound.
func (s *Store) Hold(ctx context.Context, digest string) (release func(), err error) {
	return s.committer.hold(ctx, digest)
}

// Build makes the image of a recipe the image of the recipe's reference. If an undamaged image
// exists, it returns that at once. Concurrent builds of a reference, in this process and others,
// share a build: the later callers wait and return its image.
//
// Errors: Unavailable when this host lacks a program or a program fails, with its name and the
// reason; Invalid when the resulting files are not acceptable; for a recipe that is pulled, the
// errors of [Store.Pull]. After an error, also when a context ends, the store is unchanged.
func (s *Store) Build(ctx context.Context, r *recipe.Recipe, opts BuildOptions) (spec.Image, error) {
	return s.builder.buildOnce(ctx, r, opts)
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
	return s.importer.importFile(ctx, file, opts)
}

// Cached returns the newest image that Commit made with the key and the path of its root
// filesystem, and marks it as used. It ignores images older than maxAge, unless that is 0, and
// damaged images. Errors: NotFound.
func (s *Store) Cached(ctx context.Context, key string, maxAge time.Duration) (spec.Image, string, error) {
	return s.cache.cached(ctx, key, maxAge)
}

// CachedFor is [Store.Cached] for a workspace; its result counts for the workspace from then on,
// see [Store.Owned].
func (s *Store) CachedFor(ctx context.Context, user sandbox.WorkspaceID, key string, maxAge time.Duration) (spec.Image, string, error) {
	return s.cache.cachedFor(ctx, user, key, maxAge)
}
