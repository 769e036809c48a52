// Package installation detects a database that does not belong to the files beside it: an older
// copy, a new database, or another server's. A server with such a database would mistake every
// newer sandbox and saved state for garbage and remove it.
//
// A mark is a small file with the installation and the last generation of the database. A mark is
// in the state directory, beside the files that outlive the machine, and another in the run
// directory, beside the running sandboxes. The database is always written first, so a mark is never
// ahead of its own database.
package installation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/durable"
)

// Name is the name of a mark in its directory.
const Name = "installation"

// markMax bounds the bytes read of a mark.
const markMax = 8 << 10

// Identity identifies a database and a version of its content.
type Identity struct {
	// ID is 32 hexadecimal digits, made at random with the database.
	ID string
	// Generation only grows: of two copies of a database the newer copy has the higher.
	Generation int64
}

// Mark is the content of a mark.
type Mark struct {
	Identity
	// StateDir is the state directory of the server that wrote it.
	StateDir string
}

// Read returns the mark in dir; found is false when there is none.
func Read(dir string) (m Mark, found bool, err error) {
	f, err := os.Open(filepath.Join(dir, Name))
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{}, false, nil
	}
	if err != nil {
		return Mark{}, false, fmt.Errorf("read mark of the installation: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, markMax))
	if err != nil {
		return Mark{}, false, fmt.Errorf("read mark of the installation: %w", err)
	}
	if _, err := fmt.Sscanf(string(text), format, &m.ID, &m.Generation, &m.StateDir); err != nil {
		return Mark{}, false, fmt.Errorf("read mark of the installation %s: it is damaged: %w", f.Name(), err)
	}
	return m, true, nil
}

// format has the generation at a fixed width, so that a mark can be overwritten in place: that
// needs no space on a full disk and, being within a sector, is atomic.
const format = "installation %s\ngeneration %019d\nstate_dir %q\n"

// Marks are the open marks of a running server.
type Marks struct {
	mark  Mark
	files []*os.File
}

// Write writes a mark into each directory, durably, and keeps them open for [Marks.Advance].
func Write(m Mark, dirs ...string) (_ *Marks, err error) {
	marks := &Marks{mark: m}
	defer func() {
		if err != nil {
			_ = marks.Close()
		}
	}()
	for _, dir := range dirs {
		f, err := write(dir, fmt.Sprintf(format, m.ID, m.Generation, m.StateDir))
		if err != nil {
			return nil, fmt.Errorf("write mark of the installation: %w", err)
		}
		marks.files = append(marks.files, f)
	}
	return marks, nil
}

// write replaces the mark in dir and returns it open.
func write(dir, text string) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, "."+Name+"-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := f.WriteString(text); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, Name)); err != nil {
		return nil, err
	}
	return f, durable.Sync(dir)
}

// Advance has the marks say a later generation. It does not wait for the disk: a mark that
// a loss of power takes back is behind its database, which does no harm.
func (m *Marks) Advance(generation int64) error {
	m.mark.Generation = generation
	text := fmt.Sprintf(format, m.mark.ID, generation, m.mark.StateDir)
	var errs []error
	for _, f := range m.files {
		if _, err := f.WriteAt([]byte(text), 0); err != nil {
			errs = append(errs, fmt.Errorf("write mark of the installation: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Close closes the marks, which stay.
func (m *Marks) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
