package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// lockRetry is how often a lock that another process holds is tried again.
const lockRetry = 50 * time.Millisecond

// lock takes an exclusive lock on a file, which it creates. onWait, which may be
// nil, is called once when somebody else holds it.
func lock(ctx context.Context, name string, onWait func()) (unlock func(), err error) {
	l := flock.New(name)
	ok, err := l.TryLock()
	if err == nil && !ok {
		if onWait != nil {
			onWait()
		}
		_, err = l.TryLockContext(ctx, lockRetry)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), err)
	}
	return func() { _ = l.Close() }, nil // the kernel releases it in any case
}

// lockBriefly is lock for a file that is there only while somebody has the lock or waits
// for it: whoever asks for images would otherwise leave one for each that they think of.
func lockBriefly(ctx context.Context, name string, onWait func()) (unlock func(), err error) {
	for {
		l := flock.New(name)
		ok, err := l.TryLock()
		if err == nil && !ok {
			if onWait != nil {
				onWait()
				onWait = nil
			}
			_, err = l.TryLockContext(ctx, lockRetry)
		}
		if err != nil {
			_ = l.Close() // there is nothing to lose
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), err)
		}
		if isFile(l, name) {
			return func() { _, _ = os.Remove(name), l.Close() }, nil // one that stays is taken by the next
		}
		_ = l.Close() // who had it before has removed the file
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), err)
		}
	}
}

// removeLocks removes the files of locks that nobody has and that end with their holders.
func (s *Store) removeLocks() error {
	dir := filepath.Dir(s.lockPath(pullLock))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), pullLock) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		l := flock.New(name)
		if free, err := l.TryLock(); err == nil && free && isFile(l, name) {
			_ = os.Remove(name) // the next time, then
		}
		_ = l.Close() // there is nothing to lose
	}
	return nil
}

// workDir makes a new locked directory for temporary files. While the returned
// file is open no other process takes it for a leftover.
func (s *Store) workDir(ctx context.Context) (*os.File, error) {
	unlock, err := lock(ctx, s.lockPath("tmp"), nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	name, err := os.MkdirTemp(s.tmpDir(), "build-")
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return dir, nil
}

// removeLeftovers removes the temporary directories of builds that died. What
// cannot be removed is logged and left for the next time.
func (s *Store) removeLeftovers(ctx context.Context) error {
	unlock, err := lock(ctx, s.lockPath("tmp"), nil)
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
		switch removed, err := removeUnlocked(name); {
		case err != nil:
			s.log.Warn("the remains of an interrupted build cannot be removed", "path", name, "error", err)
		case removed:
			s.log.Info("removed the remains of an interrupted build", "path", name)
		}
	}
	return nil
}

// removeUnlocked removes a directory unless somebody holds its lock.
func removeUnlocked(name string) (removed bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return false, err
	}
	return true, os.RemoveAll(name)
}

// replaceFile writes a file so that after a crash it has the old content or the new.
func replaceFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // fails when it was renamed, which is fine
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		err = syncPath(filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// syncPath puts a file or directory on disk.
func syncPath(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// moveFile renames a synced file and puts the new name on disk.
func moveFile(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncPath(filepath.Dir(to))
}

// modTime returns when a file was changed.
func modTime(name string) (time.Time, error) {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
