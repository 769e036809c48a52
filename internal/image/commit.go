package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lease"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/sandbox"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// CommitRequest describes an image made of a base and a layer.
type CommitRequest struct {
	// Base is the digest of a root filesystem in the store; "" is an empty root filesystem.
	Base string
	// Layer is an uncompressed OCI layer: a tar whose whiteouts, in the format of OCI or of overlay
	// file systems, remove files of the base. It may be hostile. It is read to its end.
	Layer io.Reader
	// Without are clean names of files that are not taken from the layer, and neither are their
	// whiteouts.
	Without []string
	// MaxBytes bounds the layer, and the total size of its files; 0 is 64 GiB.
	MaxBytes int64
	// MaxEntries bounds the number of the layer's entries; 0 is 2 million.
	MaxEntries int
	// MaxFiles bounds the entries of the layer together with the names in the base, because many small
	// layers add up; 0 is no limit.
	MaxFiles int64
	// Config is the configuration; nil is the configuration of the base.
	Config *spec.Config
	// Name and Tag become the reference of the result; the tag "" is "latest". Without a name it has
	// only its digest, and Prune keeps it while it is in use or new.
	Name, Tag   string
	Description string
	// Labels are added to the labels of the base, in the OCI image.
	Labels map[string]string
	// CreatedBy describes the layer in the OCI image's history.
	CreatedBy string
	// Owner is the only workspace that may use the result; "" is for all workspaces.
	Owner sandbox.WorkspaceID
	// CacheKey, for a result without a name, is the key for [Store.Cached].
	CacheKey string
	// Alone keeps the layer as a root filesystem of its own over the base, see package stack, for Owner, for the cache
	// of User, or for a snapshot of User. If too many lie below, it also has the files of the layers between, by [index.Index.Foundation].
	Alone bool
	keep  int // how many of those below stay below if too many lie there; 0 is all
	// Volatile images may lose their root filesystem in a power failure, which saves much of the time.
	// The file is checked before its use.
	Volatile bool
	// User, for a result with a CacheKey and without an owner, is the workspace that it counts for, as
	// by [Store.CachedFor].
	User sandbox.WorkspaceID
}

// Committed is the result of Commit.
type Committed struct {
	// Image has the digest and size of the merged root filesystem.
	spec.Image
	// Path is the absolute path of that root filesystem.
	Path string
	// FileCount counts the names in it.
	FileCount int64
	Alone     bool             // see [CommitRequest]; the path and OwnBytes are the layer's then
	Counted   []sandbox.RootFS // root filesystems that count for the User of a snapshot: see [index.Index.Counted]
	// LayerDigest and LayerBytes describe the compressed layer in the store's OCI layout, DiffID its
	// uncompressed content, ManifestDigest the OCI image.
	LayerDigest    string
	LayerBytes     int64
	DiffID         string
	ManifestDigest string
}

// Default bounds of commits.
const (
	commitMaxBytes   = 64 << 30
	commitMaxEntries = 2_000_000
)

// Commit stages a layer and publishes the image at once: see [Store.Stage].
func (s *Store) Commit(ctx context.Context, req CommitRequest) (Committed, error) {
	staged, err := s.committer.stageCommit(ctx, req)
	if err != nil {
		return Committed{}, err
	}
	defer staged.Discard()
	return staged.Publish(ctx, nil)
}

// committer makes images of layers and configurations over images of the store.
type committer struct {
	index    *index.Table
	names    *names
	files    *files
	layout   archive.Layout
	verifier *verify.Verifier
	keeper   *keeper
	leases   *lease.Leases
	scratch  *rootfs.Scratch
	log      *slog.Logger
}

// stageCommit is [Store.Stage].
func (c *committer) stageCommit(ctx context.Context, req CommitRequest) (*Staged, error) {
	if req.Name != "" {
		if err := reference.CheckLocal(req.Name, cmp.Or(req.Tag, "latest")); err != nil {
			return nil, err
		}
	}
	base, err := c.commitBase(ctx, req.Base)
	if err != nil {
		return nil, err
	}
	if base != nil && req.Alone && len(base.Below) >= stack.Max {
		ix, err := c.index.Load()
		if err != nil {
			return nil, err
		}
		req.keep = ix.Foundation(base, req.Owner)
	}
	task := "commit a layer on " + cmp.Or(req.Base, "nothing")
	staged, err := c.stage(ctx, base, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", task, err)
	}
	staged.task, staged.user = task, req.User
	return staged, nil
}

func (k *keeper) committed(rec *index.Record) Committed {
	c := Committed{Image: k.names.imageOf(rec), Path: k.files.erofsPath(rec.Digest), FileCount: rec.FileCount, Alone: len(rec.Below) > 0, ManifestDigest: rec.Manifest.Digest.String()}
	if l := rec.Commit; l != nil {
		c.LayerDigest, c.LayerBytes, c.DiffID = l.Layer.Digest.String(), l.Layer.Size, l.DiffID.String()
	}
	return c
}

// commitBase returns the record of a base whose file is intact, or nil for none.
func (c *committer) commitBase(ctx context.Context, digest string) (*index.Record, error) {
	if digest == "" {
		return nil, nil
	}
	ix, err := c.index.Load()
	if err != nil {
		return nil, err
	}
	rec := ix.ByDigest(digest)
	if rec == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no image with the digest %.100q to lay something over", digest)
	}
	if err := c.verifier.Verify(ctx, rec); err != nil {
		return nil, err
	}
	return rec, c.verifier.Blobs(ctx, rec)
}

// below returns the digests below the result; nil if it has all files.
func (req *CommitRequest) below(base *index.Record) []string {
	if base == nil || !req.Alone {
		return nil
	}
	if req.keep > 0 {
		return base.Below[len(base.Below)-req.keep:]
	}
	return append([]string{base.Digest}, base.Below...)
}

// stage does the work of Stage.
func (c *committer) stage(ctx context.Context, base *index.Record, req CommitRequest) (*Staged, error) {
	work, undo, err := c.files.workDir(ctx)
	if err != nil {
		return nil, err
	}
	defer undo.Clean()
	entries := cmp.Or(req.MaxEntries, commitMaxEntries)
	under := c.scratch.Tree(ctx, cmp.Or(req.Owner, req.User))
	defer under.Close()
	if base != nil {
		if space := req.MaxFiles - base.FileCount; req.MaxFiles > 0 && space < int64(entries) {
			if space <= 0 {
				return nil, sandbox.Errorf(sandbox.TooLarge, "the base has %d files, and an image may have at most %d", base.FileCount, req.MaxFiles)
			}
			entries = int(space)
		}
		release, err := c.hold(ctx, base.Digest)
		if err != nil {
			return nil, err
		}
		undo.Add(release)
		files, err := rootfs.OpenStack(c.files.erofsPath(base.Digest))
		if err != nil {
			return nil, err
		}
		defer files.Close()
		if req.Alone {
			under.Over(rootfs.Base{Stack: files, Digests: append([]string{base.Digest}, base.Below...), Files: base.FileCount, Keep: req.keep})
		} else if err := under.Read(files); err != nil {
			return nil, err
		}
	}
	w, err := rootfs.NewWriter(rootfs.Spec{
		Dir: work, Date: time.Unix(0, 0),
		Limits: rootfs.Limits{Bytes: cmp.Or(req.MaxBytes, commitMaxBytes), Entries: entries},
	}, under)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := w.ReadLayer(ctx, req.Layer, req.Without); err != nil {
		return nil, err
	}
	staged, err := c.stageLayer(ctx, w, base, req)
	if err != nil {
		return nil, err
	}
	staged.undo = cleanup.Make(undo.Release())
	return staged, nil
}

// stageLayer completes the image of a layer that was read, unless the store has it.
func (c *committer) stageLayer(ctx context.Context, w *rootfs.Writer, base *index.Record, req CommitRequest) (*Staged, error) {
	layer, err := w.FinishLayer()
	if err != nil {
		return nil, err
	}
	rec := index.Record{
		Name: req.Name, Current: req.Name != "", Description: req.Description, UpdatedAt: time.Now().UTC(),
		Owner: req.Owner, Commit: &index.Commit{DiffID: layer.DiffID, Layer: archive.Ref{Digest: layer.Digest, Size: layer.Size}},
	}
	if rec.Name != "" {
		rec.Tag = cmp.Or(req.Tag, "latest")
	} else {
		rec.CacheKey = req.CacheKey
	}
	if (rec.CacheKey != "" || req.Alone) && rec.Owner == "" {
		rec.Use(req.User, rec.UpdatedAt)
	}
	if base != nil {
		rec.Commit.Base, rec.Below = base.Digest, req.below(base)
		rec.Config, rec.MemoryBytes, rec.ReadinessPort, rec.TTL = base.Config, base.MemoryBytes, base.ReadinessPort, base.TTL
		rec.Packages = base.Packages
	}
	if req.Config != nil {
		rec.Config = *req.Config
	}
	if rec.Commit.ConfigHash, err = configHash(rec.Config, req); err != nil {
		return nil, err
	}
	done, err := c.commitDone(ctx, &rec)
	if err != nil {
		return nil, err
	}
	if done != nil {
		return &Staged{keeper: c.keeper, rec: done, done: true}, nil
	}
	root, err := w.Finish(ctx, layer)
	if err != nil {
		return nil, err
	}
	staged := &Staged{keeper: c.keeper, root: &made{Result: root, volatile: req.Volatile}, rec: &rec, write: func(layer rootfs.Blob) (archive.Ref, error) {
		img, err := c.commitImage(base, layer, &rec, req)
		if err != nil {
			return archive.Ref{}, err
		}
		return c.layout.Add(img)
	}}
	return staged, c.keeper.complete(ctx, staged.root, &rec)
}

// configHash identifies the parts of a request other than base and layer.
func configHash(config spec.Config, req CommitRequest) (string, error) {
	data, err := json.Marshal([]any{config, req.Description, req.Labels})
	if err != nil {
		return "", fmt.Errorf("describe configuration: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// commitDone returns the record of the same commit with the same name if it exists and is intact,
// and marks it as requested again.
func (c *committer) commitDone(ctx context.Context, rec *index.Record) (*index.Record, error) {
	ix, unlock, err := c.index.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for i := range ix.Images {
		old := &ix.Images[i]
		if old.Commit == nil || *old.Commit != *rec.Commit || old.Ref() != rec.Ref() || old.Owner != rec.Owner || old.Current != rec.Current || old.CacheKey != rec.CacheKey || !slices.Equal(old.Below, rec.Below) || !verify.Untouched(c.files.erofsPath(old.Digest), old) {
			continue
		}
		if old.FileTime.IsZero() {
			old.FileTime = old.UpdatedAt
		}
		old.UpdatedAt = rec.UpdatedAt // counts as new for Prune
		for ws, at := range rec.Users {
			old.Use(ws, at)
		}
		done := *old
		return &done, c.index.Write(ix)
	}
	return nil, nil
}

// commitImage returns the OCI image of a commit.
func (c *committer) commitImage(base *index.Record, layer rootfs.Blob, rec *index.Record, req CommitRequest) (img v1.Image, err error) {
	if base != nil {
		if img, err = c.layout.Image(base.Manifest.Digest); err != nil {
			return nil, fmt.Errorf("read the base's OCI image: %w", err)
		}
	}
	return archive.AddLayer(img, archive.Layered{Layer: layer, CreatedBy: req.CreatedBy, Config: rec.Config, Labels: req.Labels})
}

// stageBuilt is [Store.StageBuilt].
func (c *committer) stageBuilt(ctx context.Context, req FinishRequest) (*Staged, error) {
	base, err := c.commitBase(ctx, req.Base)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has no files")
	}
	rec := index.Record{
		Name: req.Name, Tag: req.Tag, Owner: req.Owner, Current: req.Name != "", UpdatedAt: time.Now().UTC(), Packages: base.Packages,
		Below: base.Below, Manifest: base.Manifest, // which has the same layers, until the image has its own
	}
	if rec.Config, err = oci.RunConfig(&req.Config); err != nil {
		return nil, err
	}
	work, undo, err := c.files.workDir(ctx)
	if err != nil {
		return nil, err
	}
	defer undo.Clean()
	data, err := json.Marshal([]any{"built 1", req.Owner, req.Config})
	if err != nil {
		return nil, err
	}
	mark := sha256.Sum256(data)
	root := &made{Result: rootfs.Result{EROFS: filepath.Join(work, "root.erofs"), Files: base.FileCount}, mark: mark[:rootfs.MarkLength]}
	if err := rootfs.LinkOrCopy(ctx, c.files.erofsPath(base.Digest), root.EROFS); err != nil {
		return nil, fmt.Errorf("name root filesystem: %w", err)
	}
	staged := &Staged{keeper: c.keeper, root: root, rec: &rec, task: fmt.Sprintf("finish image %s:%s", req.Name, req.Tag), write: func(rootfs.Blob) (archive.Ref, error) {
		img, err := c.builtImage(base, req)
		if err != nil {
			return archive.Ref{}, err
		}
		return c.layout.Add(img)
	}}
	if err := c.keeper.complete(ctx, root, &rec); err != nil {
		return nil, fmt.Errorf("%s: %w", staged.task, err)
	}
	staged.undo = cleanup.Make(undo.Release())
	return staged, nil
}

// ociImage returns the OCI image of a record.
func (c *committer) ociImage(rec *index.Record) (v1.Image, error) {
	img, err := c.layout.Image(rec.Manifest.Digest)
	if err != nil {
		return nil, fmt.Errorf("read OCI image of %s: %w", rec.Ref(), err)
	}
	return img, nil
}

// builtImage returns the OCI image of a request over its base's layers.
func (c *committer) builtImage(base *index.Record, req FinishRequest) (v1.Image, error) {
	img, err := c.ociImage(base)
	if err != nil {
		return nil, err
	}
	return archive.Configure(img, req.Author, req.Config)
}
