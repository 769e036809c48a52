// Package lock locks files between processes. The kernel releases a lock when its process ends.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// Retry is the pause between two attempts to take a lock that another holder has.
const Retry = 50 * time.Millisecond

// File takes an exclusive lock on a file, which it creates. It calls onWait, which may be nil,
// once if it has to wait.
func File(ctx context.Context, name string, onWait func()) (unlock func(), err error) {
	l := flock.New(name)
	ok, err := l.TryLock()
	if err == nil && !ok {
		if onWait != nil {
			onWait()
		}
		_, err = l.TryLockContext(ctx, Retry)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), err)
	}
	return func() { _ = l.Close() }, nil // the kernel releases it in any case
}

// Try is [File] without waiting: it reports whether it has the lock.
func Try(name string) (unlock func(), ok bool, err error) {
	l := flock.New(name)
	if ok, err = l.TryLock(); err != nil || !ok {
		_ = l.Close() // nothing is lost
		if err != nil {
			err = fmt.Errorf("lock %s: %w", filepath.Base(name), err)
		}
		return nil, false, err
	}
	return func() { _ = l.Close() }, true, nil
}

// Briefly is [File] for a file that exists only while a process holds the lock or waits for it.
// The names of such files come from callers, who could otherwise fill the disk with lock files.
func Briefly(ctx context.Context, name string, onWait func()) (unlock func(), err error) {
	for {
		l := flock.New(name)
		ok, err := l.TryLock()
		if err == nil && !ok {
			if onWait != nil {
				onWait()
				onWait = nil
			}
			_, err = l.TryLockContext(ctx, Retry)
		}
		if err != nil {
			_ = l.Close() // nothing is lost
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), err)
		}
		if isFile(l, name) {
			return func() { _, _ = os.Remove(name), l.Close() }, nil // the next holder takes a file that stays
		}
		_ = l.Close() // the previous holder has removed the file
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), err)
		}
	}
}

// RemoveBrief removes the file of a lock of [Briefly] that no process holds. A crash leaves such
// files.
func RemoveBrief(name string) {
	l := flock.New(name)
	if free, err := l.TryLock(); err == nil && free && isFile(l, name) {
		_ = os.Remove(name) // the next call tries again
	}
	_ = l.Close() // nothing is lost
}

// Open opens a file, which it creates, for the caller alone until the caller closes it.
func Open(ctx context.Context, name string) (*os.File, error) {
	tick := time.NewTicker(Retry)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isFile(f, name) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// RemoveFree removes a file unless a process has it by [Open].
func RemoveFree(name string) (removed bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !isFile(f, name) {
		return false, nil // the name may be another file's by now
	}
	err = os.Remove(name)
	return err == nil, err
}

// Dir makes a new locked directory below dir. No other process may remove it with [RemoveFreeDir]
// while the returned file is open. The caller prevents that at the same time.
func Dir(dir, pattern string) (*os.File, error) {
	name, err := os.MkdirTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// RemoveFreeDir removes a directory and its files unless a process holds its lock.
func RemoveFreeDir(name string) (removed bool, err error) {
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

// isFile reports whether a name still is the open file.
func isFile(f interface{ Stat() (fs.FileInfo, error) }, name string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(name)
	return err == nil && os.SameFile(open, now)
}
