// Package installation detects a database that does not belong to the files beside it: an older
// copy, a new database, or another server's. A server with such a database would mistake every
// newer sandbox and saved state for garbage and remove it.
//
// A mark is a small file with the installation and the last generation of the database. A mark is
// in the state directory, beside the files that outlive the machine, and another in the run
// directory, beside the running sandboxes. The database is always written first, so a mark is never
// ahead of its own database. Servers that work on parts of the sandboxes at the same time have a mark each; the newest mark counts.
package installation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
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

// Read returns the mark in dir, of several the newest; found is false when there is none.
func Read(dir string) (m Mark, found bool, err error) {
	names, err := ofParts(dir)
	if err != nil {
		return Mark{}, false, fmt.Errorf("read mark of the installation: %w", err)
	}
	for _, name := range append(names, Name) {
		one, there, err := read(filepath.Join(dir, name))
		if err != nil {
			return Mark{}, false, fmt.Errorf("read mark of the installation: %w", err)
		}
		if there && (!found || one.Generation > m.Generation) {
			m, found = one, true
		}
	}
	return m, found, nil
}

// ofParts returns the names of the marks of servers with parts.
func ofParts(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), Name+".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func read(path string) (m Mark, found bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{}, false, nil
	}
	if err != nil {
		return Mark{}, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, markMax))
	if err != nil {
		return Mark{}, false, err
	}
	if _, err := fmt.Sscanf(string(text), format, &m.ID, &m.Generation, &m.StateDir); err != nil {
		return Mark{}, false, fmt.Errorf("%s is damaged: %w", path, err)
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

// Write writes the mark of a server that works on ranges of shards into each directory, durably, and keeps them open for [Marks.Advance]. Marks of
// other servers with the same ranges go.
func Write(m Mark, r sandbox.Ranges, dirs ...string) (_ *Marks, err error) {
	marks := &Marks{mark: m}
	defer func() {
		if err != nil {
			_ = marks.Close()
		}
	}()
	for _, dir := range dirs {
		f, err := write(dir, nameOf(r), fmt.Sprintf(format, m.ID, m.Generation, m.StateDir))
		if err != nil {
			return nil, fmt.Errorf("write mark of the installation: %w", err)
		}
		marks.files = append(marks.files, f)
		if err := removeOthers(dir, r); err != nil {
			return nil, fmt.Errorf("remove marks of other servers: %w", err)
		}
	}
	return marks, nil
}

// nameOf returns the name of the mark of a server that works on ranges: with the first range, if they are not all.
func nameOf(r sandbox.Ranges) string {
	if r == sandbox.AllRanges {
		return Name
	}
	return fmt.Sprintf("%s.%x", Name, r.First())
}

// removeOthers removes the marks of servers that have had ranges which this server has now. Its mark is newer.
func removeOthers(dir string, r sandbox.Ranges) error {
	var errs []error
	removed := false
	for n := range sandbox.RangeCount {
		name := nameOf(sandbox.RangesFrom(n, n))
		if !r.HasRange(n) || name == nameOf(r) {
			continue
		}
		err := os.Remove(filepath.Join(dir, name))
		if err == nil {
			removed = true
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if removed {
		errs = append(errs, durable.Sync(dir))
	}
	return errors.Join(errs...)
}

// write replaces the mark in dir and returns it open.
func write(dir, name, text string) (_ *os.File, err error) {
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
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
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
