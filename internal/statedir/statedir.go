// Package statedir makes the directories in which a server keeps its files, so that other
// users of the machine cannot read them. It names the files of the state directory, locks
// it for one server, and finds the address of that server.
package statedir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Make makes a directory, with those above it, that only its owner can enter. One that
// exists and that others can enter is closed to them.
//
// Errors: when path is the root or a directory that all users share, such as /tmp: they
// cannot be closed.
func Make(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	open, err := Open(path)
	if err != nil || !open {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at directory: %w", err)
	}
	if filepath.Clean(path) == "/" || info.Mode()&fs.ModeSticky != 0 {
		return fmt.Errorf("directory %s is shared with other users; choose one below it", path)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("close directory to other users: %w", err)
	}
	return nil
}

// Open reports whether users other than its owner have any permission on a directory; a missing
// directory is not open.
func Open(path string) (bool, error) {
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at directory: %w", err)
	}
	return info.Mode().Perm()&0o077 != 0, nil
}
