package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/sandbox"
)

// filesAtOnce bounds the files that a restore writes at the same time.
const filesAtOnce = 4

// download writes the files of a backup that a restore needs into dir, and returns the names there. Errors: DiskFull, before it writes anything.
func (b *Bucket) download(ctx context.Context, s *Stored, dir string, o RestoreOptions) (tops []string, err error) {
	var files []StoredFile
	var need need
	for _, f := range s.Files {
		if err := checkName(f.Name); err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "backup %s in %s is damaged; nothing was changed", s.ID, b.objects.URL())
		}
		if o.leavesOut(f.Name) {
			continue
		}
		top, _, _ := strings.Cut(f.Name, "/")
		tops = append(tops, top)
		files = append(files, f)
		need.add(b.objects.DownloadBytes(f.Blobs, f.Size))
	}
	have, err := o.space(dir)
	if err == nil {
		err = need.check(have, dir)
	}
	if err != nil {
		return nil, err
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(filesAtOnce) // for small files; the store bounds the memory
	for _, f := range files {
		group.Go(func() error {
			if within.Err() != nil {
				return context.Cause(within)
			}
			if err := b.file(within, &f, dir); err != nil {
				return fmt.Errorf("%s of backup %s; nothing was changed: %w", f.Name, s.ID, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(tops)
	return slices.Compact(tops), nil
}

// file writes a file of a backup.
func (b *Bucket) file(ctx context.Context, file *StoredFile, dir string) (err error) {
	name := filepath.Join(dir, filepath.FromSlash(file.Name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	// No mode gives others more permissions than the owner's umask permits.
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.Mode&0o700|0o400)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Chtimes(name, file.ModifiedAt, file.ModifiedAt)
		}
	}()
	if err := b.objects.Download(ctx, file.Blobs, file.Size, f); err != nil {
		return err
	}
	return f.Truncate(file.Size) // zero bytes at its end were not written
}
