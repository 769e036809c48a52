package base

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteWhole creates the file name with the output of write if write succeeds, and no file
// otherwise.
func WriteWhole(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".modbox-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename, as it should
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
