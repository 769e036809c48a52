package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/lock"
)

// removeLocks removes the lock files of pulls that a crash left.
func (s *Store) removeLocks() error {
	dir := filepath.Dir(s.lockPath(pullLock))
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

// workDir makes a new locked directory for temporary files. No process removes it as a leftover
// while the returned file is open.
func (s *Store) workDir(ctx context.Context) (*os.File, error) {
	unlock, err := lock.File(ctx, s.lockPath("tmp"), nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return lock.Dir(s.tmpDir(), "build-")
}

// removeLeftovers removes the temporary directories of processes that died. It logs directories
// that it cannot remove; the next call tries again.
func (s *Store) removeLeftovers(ctx context.Context) error {
	unlock, err := lock.File(ctx, s.lockPath("tmp"), nil)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(s.tmpDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(s.tmpDir(), e.Name())
		switch removed, err := lock.RemoveFreeDir(name); {
		case err != nil:
			s.log.Warn("the remains of an interrupted build cannot be removed", "path", name, "error", err)
		case removed:
			s.log.Info("removed the remains of an interrupted build", "path", name)
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
