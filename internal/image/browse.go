package image

import (
	"context"
	"fmt"
	"io"

	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// openRootfs opens the root filesystem with a digest. Errors: NotFound; Unavailable for a damaged
// file.
func (s *Store) openRootfs(ctx context.Context, digest string) (*rootfs.Reader, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	rec := ix.ByDigest(digest)
	if rec == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no root filesystem with the digest %.100q", digest)
	}
	if err := s.verifier.verify(ctx, rec); err != nil {
		return nil, err
	}
	r, err := rootfs.Open(s.files.erofsPath(rec.Digest))
	if err != nil {
		return nil, fmt.Errorf("open root filesystem %s: %w", digest, err)
	}
	return r, nil
}

// Files returns a part of the names in the root filesystem with a digest. Errors:
// Invalid, naming path or after; NotFound.
func (s *Store) Files(ctx context.Context, digest string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	r, err := s.openRootfs(ctx, digest)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	defer r.Close()
	return r.Files(ctx, q)
}

// Archive packs a directory or file of the root filesystem with a digest, as tar or, with
// compress, tar.gz, while it is read: see [Reader.Archive]. The caller closes the archive.
// Errors: Invalid, naming path; NotFound.
func (s *Store) Archive(ctx context.Context, digest, name string, compress bool) (io.ReadCloser, error) {
	r, err := s.openRootfs(ctx, digest)
	if err != nil {
		return nil, err
	}
	archive, err := r.Archive(ctx, name, compress)
	if err != nil {
		r.Close()
		return nil, err
	}
	return archive, nil
}

// OpenFiles returns the files of the root filesystem with a digest; "" is an empty root filesystem.
// Their memory counts for a workspace. Errors: NotFound; Unavailable for a damaged file, and when
// other images use the memory; TooLarge.
func (s *Store) OpenFiles(ctx context.Context, owner sandbox.WorkspaceID, digest string) (*rootfs.Files, error) {
	rec, err := s.committer.commitBase(ctx, digest)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return s.scratch.Files(ctx, owner, "")
	}
	return s.scratch.Files(ctx, owner, s.files.erofsPath(rec.Digest))
}

// Scratch returns the memory and directory for work on root filesystems.
func (s *Store) Scratch() *rootfs.Scratch { return s.scratch }
