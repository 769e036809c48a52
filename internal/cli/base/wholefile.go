package base

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteWhole makes the file name, with what write writes, when write succeeds, and otherwise no file.
func WriteWhole(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".modbox-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails when it was renamed, which is fine
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
