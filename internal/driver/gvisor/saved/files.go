package saved

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/chunksum"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// Files of a checkpoint. The first three are gVisor's; pages has the memory and the files of layers
// on disk.
const (
	stateFile  = "state.img"
	pagesIndex = "pages.meta"
	pagesFile  = "pages.img"
	// LayerName is the file with the written files as a layer; not every checkpoint has it.
	LayerName = driver.LayerFile
)

// names are gVisor's files, in the order in which it takes them.
var names = []string{stateFile, pagesIndex, pagesFile}

// Files are gVisor's files of a checkpoint, in the order in which it takes them.
type Files []*os.File

// Close closes the files.
func (f Files) Close() {
	for _, file := range f {
		file.Close()
	}
}

// Create creates the files of a checkpoint in dir, or empties them. The caller closes them.
func Create(dir string) (Files, error) {
	var files Files
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
		if err != nil {
			files.Close()
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// sumFiles returns the digests of files of a checkpoint in dir.
func sumFiles(ctx context.Context, dir string, files []string) (map[string]chunksum.Sums, error) {
	sums := map[string]chunksum.Sums{}
	for _, name := range files {
		s, err := sumFile(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("digest of %s: %w", name, err)
		}
		sums[name] = s
	}
	return sums, nil
}

func sumFile(ctx context.Context, name string) (chunksum.Sums, error) {
	f, err := os.Open(name)
	if err != nil {
		return chunksum.Sums{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return chunksum.Sums{}, err
	}
	return chunksum.Of(ctx, f, info.Size())
}

// openSaved opens a file of a checkpoint; it refuses links and special files.
func openSaved(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	return f, nil
}

// Open reads a checkpoint's manifest and opens its files, whose sizes must match it; the caller
// closes them. Errors: [driver.ErrNoMemory] for a checkpoint of the files alone; NotFound for anything else,
// which is not a complete checkpoint; the system's when it says nothing about the checkpoint.
func Open(dir string) (m Manifest, files Files, err error) {
	defer func() {
		if err != nil {
			files.Close()
			m, files = Manifest{}, nil
			if unreadable(err) || errors.Is(err, driver.ErrNoMemory) {
				return
			}
			err = sandbox.Wrap(sandbox.NotFound, err, "there is no complete checkpoint")
		}
	}()
	if m, err = ReadManifest(dir); err != nil {
		return m, nil, err
	}
	if m.FilesOnly {
		return m, nil, m.checkLayer(dir)
	}
	for _, name := range names {
		f, err := openSaved(dir, name)
		if err != nil {
			return m, files, err
		}
		files = append(files, f)
		info, err := f.Stat()
		if err != nil {
			return m, files, err
		}
		if want, ok := m.Files[name]; !ok || info.Size() != want {
			return m, files, fmt.Errorf("%s has %d bytes, want %d", name, info.Size(), want)
		}
	}
	return m, files, nil
}

// checkLayer returns [driver.ErrNoMemory] if the layer of a checkpoint of the files alone is there.
func (m Manifest) checkLayer(dir string) error {
	f, err := openSaved(dir, LayerName)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if want, ok := m.Files[LayerName]; ok && info.Size() != want {
		return fmt.Errorf("%s has %d bytes, want %d", LayerName, info.Size(), want)
	}
	return driver.ErrNoMemory
}

// unreadable reports whether an error tells nothing about the files of a checkpoint: it concerns
// this process and may be gone the next time.
func unreadable(err error) bool {
	for _, no := range []syscall.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EACCES, unix.EPERM, unix.EINTR} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// Sums returns the digests of the files of a checkpoint, without its manifest. If sync is set it syncs the files to disk meanwhile,
// so that the digests, from the page cache, take no additional time.
func Sums(ctx context.Context, dir string, sync bool) (sums map[string]chunksum.Sums, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	g, ctx := errgroup.WithContext(ctx)
	if sync {
		g.Go(func() error { return syncFiles(ctx, dir, all...) })
	}
	g.Go(func() (err error) {
		sums, err = sumFiles(ctx, dir, all)
		return err
	})
	return sums, g.Wait()
}

// SyncManifest syncs the manifest in dir, and dir, to disk.
func SyncManifest(ctx context.Context, dir string) error {
	return syncFiles(ctx, dir, ManifestName, ManifestCopy, ".")
}

// syncFiles syncs files in dir to disk. It returns early when ctx ends.
func syncFiles(ctx context.Context, dir string, names ...string) error {
	done := make(chan error, 1)
	go func() {
		for _, name := range names {
			if err := durable.Sync(filepath.Join(dir, name)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
