// Package quarantine keeps saved states that the database does not know, instead of
// removing them: the database may be the wrong or a damaged one. A saved state leaves
// the quarantine when a database knows it again, when it is too old, or when its bytes
// are needed.
//
// An entry is a directory with a note, entry.json, and the saved state, saved. The note
// is written first, and the saved state is renamed into its place: it is never copied.
package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	noteName  = "entry.json"
	savedName = "saved"
	// partSuffix is of an entry that is being made or removed.
	partSuffix = ".part"
)

// Entry is a saved state in quarantine.
type Entry struct {
	// ID is the name of the entry's directory.
	ID string `json:"id"`
	// Sandbox and Checkpoint say what the saved state is of.
	Sandbox    sandbox.ID           `json:"sandbox"`
	Checkpoint sandbox.CheckpointID `json:"checkpoint"`
	// From is the path at which it was.
	From string `json:"from"`
	// Reason says why it is here, as a sentence.
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// SizeBytes is what its files take on the disk, unless other saved states share them.
	SizeBytes int64 `json:"size_bytes"`
}

// Store is a directory with saved states in quarantine. Several processes may use it: a
// method that finds an entry changed by another one leaves it.
type Store struct{ dir string }

// New returns the store in a directory, which the first [Store.Put] makes.
func New(dir string) *Store { return &Store{dir} }

// Path returns where the saved state of an entry is.
func (s *Store) Path(id string) string { return filepath.Join(s.dir, id, savedName) }

// Put moves the saved state at a path, which must be on the same file system, into
// quarantine. It is on the disk there when Put returns nil; after an error or a crash it
// is at one of the two places, whole.
func (s *Store) Put(path string, sb sandbox.ID, checkpoint sandbox.CheckpointID, reason string) error {
	e := Entry{ID: string(sb) + "-" + string(checkpoint), Sandbox: sb, Checkpoint: checkpoint, From: path, Reason: reason, At: time.Now().UTC()}
	if e.ID != filepath.Base(e.ID) {
		return fmt.Errorf("quarantine %s: its name is not one of a saved state", path)
	}
	var err error
	if e.SizeBytes, err = diskBytes(path); err != nil {
		return fmt.Errorf("quarantine %s: %w", path, err)
	}
	if err := s.put(path, e); err != nil {
		return fmt.Errorf("quarantine %s: %w", path, err)
	}
	return nil
}

func (s *Store) put(path string, e Entry) error {
	note, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	// A part that a crash left may hold the saved state: Put and Tidy of the same server
	// are not under way at the same time, and a name is that of one saved state.
	dir := filepath.Join(s.dir, e.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := writeSynced(filepath.Join(dir, noteName), note); err != nil {
		return err
	}
	if err := durable.Sync(dir, s.dir, filepath.Dir(s.dir)); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, savedName)); err != nil {
		return err
	}
	return durable.Sync(dir, filepath.Dir(path))
}

// Return moves the saved state of an entry to a path at which there is nothing, and
// removes the entry. It is on the disk there when Return returns nil.
func (s *Store) Return(id, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("return %s from quarantine: %w", id, err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, s.Path(id), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("return %s from quarantine: %w", id, err)
	}
	dir := filepath.Dir(path)
	if err := durable.Sync(dir, filepath.Dir(dir)); err != nil {
		return fmt.Errorf("return %s from quarantine: %w", id, err)
	}
	if err := s.remove(id); err != nil {
		return fmt.Errorf("return %s from quarantine: %w", id, err)
	}
	return nil
}

// List returns the entries, the oldest first; none when there is no directory, or no store.
func (s *Store) List() ([]Entry, error) {
	if s == nil {
		return nil, nil
	}
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list quarantine: %w", err)
	}
	var list []Entry
	for _, name := range names {
		if strings.HasSuffix(name.Name(), partSuffix) {
			continue
		}
		if _, err := os.Lstat(s.Path(name.Name())); err != nil {
			continue // it is being put here, or returned
		}
		list = append(list, s.read(name))
	}
	slices.SortFunc(list, func(a, b Entry) int { return a.At.Compare(b.At) })
	return list, nil
}

// read returns an entry; of one whose note is damaged what the file system says.
func (s *Store) read(dir fs.DirEntry) Entry {
	e := Entry{ID: dir.Name()}
	data, err := os.ReadFile(filepath.Join(s.dir, e.ID, noteName))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		e.Reason = "its note cannot be read"
		if info, err := dir.Info(); err == nil {
			e.At = info.ModTime()
		}
		e.SizeBytes, _ = diskBytes(s.Path(dir.Name())) // 0 when that cannot be read either
	}
	e.ID = dir.Name()
	return e
}

// Remove removes an entry with its saved state. Errors: NotFound.
func (s *Store) Remove(id string) error {
	if id == "" || id != filepath.Base(id) || id == "." || id == ".." {
		return sandbox.Errorf(sandbox.NotFound, "there is nothing %q in quarantine", id)
	}
	err := s.remove(id)
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.NotFound, "there is nothing %q in quarantine", id)
	}
	if err != nil {
		return fmt.Errorf("remove %s from quarantine: %w", id, err)
	}
	return nil
}

// remove takes the entry's name away first, so that a crash leaves no half of it.
func (s *Store) remove(id string) error {
	part := filepath.Join(s.dir, id+partSuffix)
	if err := os.Rename(filepath.Join(s.dir, id), part); err != nil {
		return err
	}
	return os.RemoveAll(part)
}

// Limits bound a quarantine.
type Limits struct {
	// MaxAge is how long an entry stays; 0 is as long as there is room.
	MaxAge time.Duration
	// MaxBytes is how much the entries may take together; 0 is as much as there is room for.
	MaxBytes int64
}

// Trim removes the entries that are older than they may be, the oldest of those that take
// too much together, and what a crash left of an entry. It returns those removed. The files
// of an entry may be large: Trim takes a while, and stops between two entries when ctx ends.
func (s *Store) Trim(ctx context.Context, l Limits, now time.Time) (removed []Entry, err error) {
	if err := s.tidy(); err != nil {
		return nil, err
	}
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	total := size(list)
	for _, e := range list {
		tooOld := l.MaxAge > 0 && now.Sub(e.At) >= l.MaxAge
		tooMuch := l.MaxBytes > 0 && total > l.MaxBytes
		if !tooOld && !tooMuch {
			break // those that follow are newer
		}
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		if err := s.Remove(e.ID); err != nil {
			return removed, err
		}
		total -= e.SizeBytes
		removed = append(removed, e)
	}
	return removed, nil
}

// RemoveOldest removes the oldest entries until so many bytes were freed, or all. It
// takes a while, as [Store.Trim].
func (s *Store) RemoveOldest(ctx context.Context, bytes int64) (removed []Entry, err error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if bytes <= 0 {
			break
		}
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		if err := s.Remove(e.ID); err != nil {
			return removed, err
		}
		bytes -= e.SizeBytes
		removed = append(removed, e)
	}
	return removed, nil
}

// unusedAfter is how long a note without a saved state stays: one is about to be put there.
const unusedAfter = time.Hour

// tidy removes entries whose removal was cut short, and notes without a saved state.
func (s *Store) tidy() error {
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("tidy quarantine: %w", err)
	}
	var errs []error
	for _, name := range names {
		if strings.HasSuffix(name.Name(), partSuffix) {
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, name.Name())))
			continue
		}
		_, err := os.Lstat(s.Path(name.Name()))
		if info, ierr := name.Info(); errors.Is(err, fs.ErrNotExist) && ierr == nil && time.Since(info.ModTime()) >= unusedAfter {
			_ = os.Remove(filepath.Join(s.dir, name.Name(), noteName)) // not there when a crash came before it
			errs = append(errs, os.Remove(filepath.Join(s.dir, name.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tidy quarantine: %w", err)
	}
	return nil
}

func size(list []Entry) (n int64) {
	for _, e := range list {
		n += e.SizeBytes
	}
	return n
}

// diskBytes returns what the files below a path take on the disk.
func diskBytes(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: name, Err: err}
		}
		n += st.Blocks * 512
		return nil
	})
	return n, err
}

// writeSynced replaces a file at once, so that a reader finds the content before or after.
func writeSynced(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), name)
}
