package imagearchive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sparse"
)

// Fetch implements [verify.Away].
func (s *Service) Fetch(ctx context.Context, ws sandbox.WorkspaceID, digest, path string) error {
	f, has := s.find(digest)
	if !has {
		return sandbox.Errorf(sandbox.NotFound, "the object store has no file of an image with the digest %.100q", digest)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return sandbox.Errorf(sandbox.Unavailable, "the server is shutting down")
	}
	s.fetching.Add(1)
	s.mu.Unlock()
	defer s.fetching.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	leave, err := s.fetches.Acquire(ctx, ws, nil)
	if err != nil {
		return err
	}
	defer leave()
	space, err := s.cfg.Space.Reserve(filepath.Dir(path), f.SizeBytes, "fetch a file of an image")
	if err != nil {
		return err
	}
	defer space.Release()
	if err = s.fetch(ctx, &f, space, path); err == nil {
		s.moved.bytes.WithLabelValues("fetched").Add(float64(f.SizeBytes))
		return nil
	}
	switch code := sandbox.CodeOf(err); {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return sandbox.Wrap(sandbox.DiskFull, err, "the server's disk is too full to fetch a file of an image")
	case errors.Is(err, errAway):
	case code == sandbox.NotFound || code == sandbox.Invalid:
		s.moved.damaged.Inc()
		s.damaged(ctx, digest)
		s.log.Error("a stored file of an image is missing or damaged", "digest", digest, "error", err)
		return sandbox.Wrap(sandbox.Unsupported, err, "it is missing or damaged in the object store")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "it is in the object store, which cannot be used now (archive.url); try again, or ask an administrator")
}

// errAway reports that the object store cannot be opened.
var errAway = errors.New("the object store cannot be opened")

// fetch writes a stored file to a path, checks it, and brings it to the disk.
func (s *Service) fetch(ctx context.Context, file *index.StoredFile, space *ballast.Reservation, path string) (err error) {
	if file.Content == "" {
		data, err := s.deps.Records.Blob(ctx, file.Digest)
		if err != nil {
			return err
		}
		return write(path, func(f *os.File) error {
			_, err := f.Write(data)
			return err
		})
	}
	objects, err := s.objects.Within(ctx, patience)
	if err != nil {
		return errors.Join(errAway, err)
	}
	if err := write(path, func(f *os.File) error { return s.download(ctx, objects, file, space, f) }); err != nil {
		return err
	}
	sum, _, err := hashFile(ctx, path)
	if err == nil && sum != file.Content {
		err = sandbox.Errorf(sandbox.Invalid, "its parts in the bucket %s belong to another file", objects.URL())
	}
	return err
}

// write makes a file with the content that fill writes, and brings it to the disk.
func write(path string, fill func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// download writes the parts of a file, some at a time, and counts them as written.
func (s *Service) download(ctx context.Context, objects *object.Store, file *index.StoredFile, space *ballast.Reservation, f *os.File) error {
	name, to := nameOf(file.By, file.Content), space.WriterAt(sparse.NewAt(f))
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(fetchedParts)
	for n := range parts(file.SizeBytes) {
		if within.Err() != nil {
			break
		}
		g.Go(func() error {
			data, err := objects.Part(within, name, n)
			if err != nil {
				return err
			}
			at := int64(n) * object.ChunkBytes
			if want := min(object.ChunkBytes, file.SizeBytes-at); int64(len(data)) != want {
				return sandbox.Errorf(sandbox.Invalid, "the part %d has %d bytes, and not %d", n, len(data), want)
			}
			_, err = to.WriteAt(data, at)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	if err := f.Truncate(file.SizeBytes); err != nil { // zero bytes at its end were not written
		return err
	}
	return context.Cause(ctx)
}
