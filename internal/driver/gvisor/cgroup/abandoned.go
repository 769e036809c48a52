package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock locks the directories of the parent for as long as this process uses it, so that no other
// server considers them abandoned. It returns fs.ErrNotExist when another server has just removed a
// directory.
func (p *Parent) lock() error {
	for _, dir := range p.h.parents() {
		f, err := os.Open(dir)
		if err != nil {
			return fmt.Errorf("lock group %s: %w", dir, err)
		}
		p.locked = append(p.locked, f)
		// A process with the exclusive lock is removing it at this moment.
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
			return fmt.Errorf("lock group %s: %w", dir, err)
		}
		locked, err := f.Stat()
		if err != nil {
			return fmt.Errorf("lock group %s: %w", dir, err)
		}
		now, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("lock group %s: %w", dir, err)
		}
		if !os.SameFile(locked, now) {
			return fmt.Errorf("lock group %s: it was replaced: %w", dir, fs.ErrNotExist)
		}
	}
	return nil
}

// Close lets other servers remove the parent when nothing runs in it. The groups stay.
func (p *Parent) Close() {
	for _, f := range p.locked {
		_ = f.Close() // it was only locked
	}
	p.locked = nil
}

// RemoveAbandoned removes the parents beside this one of ended servers, with their
// groups, if no process is in them: a server that was killed and never started again leaves them
// behind. It considers parents whose name isParent accepts and that are older than idle, because
// servers of earlier versions do not lock theirs. It skips what cannot be removed.
func (p *Parent) RemoveAbandoned(isParent func(name string) bool, idle time.Duration) error {
	for _, dir := range p.h.parents() {
		above := filepath.Dir(dir)
		entries, err := os.ReadDir(above)
		if err != nil {
			return fmt.Errorf("look for abandoned groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != filepath.Base(dir) && isParent(e.Name()) {
				if err := removeAbandoned(filepath.Join(above, e.Name()), idle); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func removeAbandoned(dir string, idle time.Duration) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // another server was faster, or it belongs to another user
	}
	if err != nil {
		return fmt.Errorf("look at group %s: %w", dir, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at group %s: %w", dir, err)
	}
	if time.Since(info.ModTime()) < idle || unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("look at group %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a group with processes stays
		}
	}
	_ = os.Remove(dir) // fails if a group remains
	return nil
}
