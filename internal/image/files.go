package image

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/lock"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// files are the directories of a store.
type files struct {
	dir string
	log *slog.Logger
}

// removeLocks removes the lock files of pulls that a crash left.
func (f *files) removeLocks() error {
	dir := filepath.Dir(f.lockPath(pullLock))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), pullLock) {
			lock.RemoveBrief(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// workDir makes a new locked directory for temporary files, which undo removes. No process removes it as a
// leftover before.
func (f *files) workDir(ctx context.Context) (dir string, undo cleanup.Cleanup, err error) {
	unlock, err := lock.File(ctx, f.lockPath("tmp"), nil)
	if err != nil {
		return "", undo, err
	}
	defer unlock()
	work, err := lock.Dir(f.tmpDir(), "build-")
	if err != nil {
		return "", undo, err
	}
	undo = cleanup.Make(func() { _ = work.Close() })
	undo.Add(func() { _ = os.RemoveAll(work.Name()) }) // the next Open removes a directory that stays
	return work.Name(), undo, nil
}

// removeLeftovers removes the temporary directories of processes that died. It logs directories
// that it cannot remove; the next call tries again.
func (f *files) removeLeftovers(ctx context.Context) error {
	unlock, err := lock.File(ctx, f.lockPath("tmp"), nil)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(f.tmpDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(f.tmpDir(), e.Name())
		switch removed, err := lock.RemoveFreeDir(name); {
		case err != nil:
			f.log.Warn("the remains of an interrupted build cannot be removed", "path", name, "error", err)
		case removed:
			f.log.Info("removed the remains of an interrupted build", "path", name)
		}
	}
	return nil
}

// modTime returns the time at which a file was changed.
func modTime(name string) (time.Time, error) {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (f *files) imagesDir() string { return filepath.Join(f.dir, "images") }

func (f *files) tmpDir() string { return filepath.Join(f.dir, "tmp") }

func (f *files) lockPath(what string) string {
	return filepath.Join(f.dir, "locks", strings.NewReplacer("/", "_", ":", "_", "@", "_").Replace(what)+".lock")
}

// erofsPath returns the path of the root filesystem with a digest.
func (f *files) erofsPath(digest string) string {
	return filepath.Join(f.imagesDir(), strings.TrimPrefix(digest, "sha256:")+".erofs")
}
