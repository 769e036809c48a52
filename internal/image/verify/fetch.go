package verify

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// Away has files of images in an object store. Its methods are safe for concurrent use.
type Away interface {
	// Has reports whether the file with a digest is there.
	Has(digest string) bool
	// Fetch writes the file with a digest to a path that does not exist, for a workspace. It has checked and synced the file. Errors: NotFound;
	// Unsupported when the file in the object store is missing or damaged; Unavailable; DiskFull.
	Fetch(ctx context.Context, ws sandbox.WorkspaceID, digest, path string) error
}

// isAway reports whether a file is in an object store and not on the disk.
func (v *Verifier) isAway(digest, name string) bool {
	if v.away == nil || !v.away.Has(digest) {
		return false
	}
	_, err := os.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// IsAway reports whether the root filesystem with a digest, or another below it, is in an object store and not on the disk.
func (v *Verifier) IsAway(digest string) bool {
	if v.away == nil {
		return false
	}
	ix, err := v.Index.Load()
	if err != nil {
		return false // Verify says why
	}
	rec := ix.ByDigest(digest)
	return rec != nil && slices.ContainsFunc(append([]string{rec.Digest}, rec.Below...), func(digest string) bool { return v.isAway(digest, v.Path(digest)) })
}

// Blobs fetches the missing blobs of a record's OCI image. Errors: Unavailable; DiskFull.
func (v *Verifier) Blobs(ctx context.Context, rec *index.Record) error {
	if v.away == nil {
		return nil
	}
	manifest, err := v.Layout.Manifest(rec.Manifest.Digest)
	if err != nil {
		return err
	}
	for _, blob := range append([]v1.Descriptor{manifest.Config}, manifest.Layers...) {
		name, digest := v.Layout.Blob(blob.Digest), blob.Digest.String()
		if !v.isAway(digest, name) {
			continue
		}
		err := v.fetching.Do(ctx, digest, func(ctx context.Context) error {
			return v.fetchTo(ctx, rec, digest, func(part string) error { return durable.Move(part, name) })
		})
		if err != nil {
			return notFetched(ctx, "a layer of "+rec.Title(), err)
		}
	}
	return nil
}

// notFetched explains the error of a fetch.
func notFetched(ctx context.Context, what string, err error) error {
	if code := sandbox.CodeOf(err); ctx.Err() != nil || code == sandbox.DiskFull {
		return err
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "%s", sandbox.Explain(what+" is not on the disk of the server", err))
}

// fetch brings the file of a record's root filesystem to the disk. Callers who want it share the work, which ends when none waits any more.
func (v *Verifier) fetch(ctx context.Context, rec *index.Record) error {
	return v.fetching.Do(ctx, rec.Digest, func(ctx context.Context) error {
		ix, err := v.Index.Load()
		if err != nil {
			return err
		}
		for i := range ix.Images { // a finished image and its last layer have one file
			other := &ix.Images[i]
			if name := v.Path(other.Digest); other.Digest != rec.Digest && other.File() == rec.File() && Untouched(name, other) {
				return v.inWork(ctx, func(part string) error {
					if err := rootfs.LinkOrCopy(ctx, name, part); err != nil {
						return err
					}
					return v.place(ctx, rec, part)
				})
			}
		}
		return v.fetchTo(ctx, rec, rec.Digest, func(part string) error { return v.place(ctx, rec, part) })
	})
}

// fetchTo fetches a file, and gives it to place.
func (v *Verifier) fetchTo(ctx context.Context, rec *index.Record, digest string, place func(part string) error) error {
	return v.inWork(ctx, func(part string) error {
		ws := rec.Owner
		for user := range rec.Users {
			ws = max(ws, user)
		}
		if err := v.away.Fetch(ctx, ws, digest, part); err != nil {
			return err
		}
		if err := os.Chmod(part, 0o444); err != nil {
			return err
		}
		return place(part)
	})
}

// inWork calls f with the path of a file in a new directory, which it removes.
func (v *Verifier) inWork(ctx context.Context, f func(part string) error) error {
	dir, undo, err := v.work(ctx)
	if err != nil {
		return err
	}
	defer undo.Clean()
	return f(filepath.Join(dir, "fetched"))
}

// place makes a file the record's root filesystem, unless there is another meanwhile.
func (v *Verifier) place(ctx context.Context, rec *index.Record, part string) error {
	ix, unlock, err := v.Index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now := ix.ByDigest(rec.Digest)
	if now == nil {
		return sandbox.Errorf(sandbox.NotFound, "%s was removed", rec.Title())
	}
	name := v.Path(rec.Digest)
	if Untouched(name, now) {
		return nil
	}
	if err := os.Chtimes(part, now.ModTime(), now.ModTime()); err != nil {
		return err
	}
	return durable.Move(part, name)
}
