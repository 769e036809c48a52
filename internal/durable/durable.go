// Package durable brings files, and their names in directories, to the disk: a file that
// was synced and whose name was not is gone after a loss of power.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/sparse"
)

// Sync returns nil when the content of each file, and the names in each directory, are on
// the disk. It does not sync the files below a directory.
func Sync(paths ...string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
	}
	return nil
}

// MkdirAll makes a directory, and the missing directories above it, with mode 0700. The
// names of the directories that it made are on the disk when it returns nil.
func MkdirAll(path string) error {
	top := filepath.Clean(path) // the topmost directory that is missing
	_, err := os.Stat(top)
	if err == nil {
		return os.MkdirAll(path, 0o700) // an error when path is a file
	}
	for filepath.Dir(top) != top {
		if _, err := os.Stat(filepath.Dir(top)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		top = filepath.Dir(top)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if err := Sync(filepath.Dir(dir)); err != nil {
			return err
		}
		if dir == top {
			return nil
		}
	}
}

// partPattern is the name of a copy that is not whole yet.
const partPattern = "part-*"

// CopyDir makes the directory to a copy of the directory from, in a directory that exists.
// The two share their files, which must never be written to, where the file system can.
// The copy appears under its name whole and on the disk, or, after an error, not at all; a
// crash may leave a directory "part-" and a number beside it.
func CopyDir(from, to string) error {
	part, err := os.MkdirTemp(filepath.Dir(to), partPattern)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if err := copyTree(from, part); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", from, err), os.RemoveAll(part))
	}
	if err := os.Rename(part, to); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", from, err), os.RemoveAll(part))
	}
	if err := Sync(filepath.Dir(to)); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", from, err), os.RemoveAll(to))
	}
	return nil
}

// copyTree fills the directory to, which exists, and syncs all of it.
func copyTree(from, to string) error {
	made := []string{to}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || rel == "." {
			return err
		}
		target := filepath.Join(to, rel)
		made = append(made, target)
		if d.IsDir() {
			return os.Mkdir(target, 0o700)
		}
		return linkOrCopy(path, target)
	})
	if err != nil {
		return err
	}
	return Sync(made...)
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it was only read
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := sparse.NewWriter(dst) // as the file that is copied
	_, err = io.Copy(out, src)
	return errors.Join(err, out.Finish(), dst.Close())
}

// WriteFile writes a file with mode 0644 so that a crash leaves its old content or the new.
func WriteFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // fails after the rename, which is fine
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = Move(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Move renames a file that was synced, and puts its new name on the disk.
func Move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return Sync(filepath.Dir(to))
}
