// Package quarantine stores saved states that the database does not know, instead of removing them,
// because the database may be damaged or the wrong one. A saved state leaves the quarantine when a
// database knows it again, when it is too old, or when its space is needed.
//
// An entry is a directory with a note, entry.json, and the saved state, saved. The note is written
// first, and the saved state is renamed into its place: it is never copied.
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
	// partSuffix marks an entry that is being made or removed.
	partSuffix = ".part"
)

// Entry is a saved state in quarantine.
type Entry struct {
	// ID is the name of the entry's directory.
	ID string `json:"id"`
	// Sandbox and Checkpoint identify the saved state.
	Sandbox    sandbox.ID           `json:"sandbox"`
	Checkpoint sandbox.CheckpointID `json:"checkpoint"`
	// From is its original path.
	From string `json:"from"`
	// Reason is the reason of the quarantine, as a sentence.
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// SizeBytes is the disk space of its files, unless other saved states share them.
	SizeBytes int64 `json:"size_bytes"`
}

// Store is a directory of quarantined saved states. Several processes may use it: a method skips an
// entry that another process has changed.
type Store struct{ dir string }

// New returns the store in a directory, which the first [Store.Put] creates.
func New(dir string) *Store { return &Store{dir} }

// Path returns the path of an entry's saved state.
func (s *Store) Path(id string) string { return filepath.Join(s.dir, id, savedName) }

// Put moves the saved state at a path, which must be on the same file system, into quarantine. When
// Put returns nil, it is there on the disk; after an error or a crash it is complete in one of the
// two places.
func (s *Store) Put(path string, sb sandbox.ID, checkpoint sandbox.CheckpointID, reason string) error {
	e := Entry{ID: string(sb) + "-" + string(checkpoint), Sandbox: sb, Checkpoint: checkpoint, From: path, Reason: reason, At: time.Now().UTC()}
	if e.ID != filepath.Base(e.ID) {
		return fmt.Errorf("quarantine %s: its name is not the name of a saved state", path)
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
	// A crash may have left the saved state in a part: Put and Tidy of a server do not run at the same
	// time, and a name belongs to a single saved state.
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

// Return moves the saved state of an entry to a path where nothing is, and removes the entry. When
// Return returns nil, it is there on the disk.
func (s *Store) Return(id, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("return %s from quarantine: %w", id, err)
	}
	err := unix.Renameat2(unix.AT_FDCWD, s.Path(id), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // of a file server that lacks this; no other process makes the path
		if _, err = os.Lstat(path); err == nil {
			err = fs.ErrExist
		} else if errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(s.Path(id), path)
		}
	}
	if err != nil {
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

// List returns the entries, oldest first; none when the directory does not exist or s is nil.
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
			continue // it is being added or returned
		}
		list = append(list, s.read(name))
	}
	slices.SortFunc(list, func(a, b Entry) int { return a.At.Compare(b.At) })
	return list, nil
}

// read returns an entry; if its note is damaged, with the data of the file system.
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
		e.SizeBytes, _ = diskBytes(s.Path(dir.Name())) // 0 when that cannot be read
	}
	e.ID = dir.Name()
	return e
}

// Remove removes an entry with its saved state. Errors: NotFound.
func (s *Store) Remove(id string) error {
	if id == "" || id != filepath.Base(id) || id == "." || id == ".." {
		return sandbox.Errorf(sandbox.NotFound, "there is no entry %q in quarantine", id)
	}
	err := s.remove(id)
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.NotFound, "there is no entry %q in quarantine", id)
	}
	if err != nil {
		return fmt.Errorf("remove %s from quarantine: %w", id, err)
	}
	return nil
}

// remove renames the entry first, so that a crash leaves no half of it.
func (s *Store) remove(id string) error {
	part := filepath.Join(s.dir, id+partSuffix)
	if err := os.Rename(filepath.Join(s.dir, id), part); err != nil {
		return err
	}
	return os.RemoveAll(part)
}

// Limits bound a quarantine.
type Limits struct {
	// MaxAge bounds the age of an entry; 0 retains it until its space is needed.
	MaxAge time.Duration
	// MaxBytes bounds the size of all entries together; 0 is no limit.
	MaxBytes int64
}

// Trim removes entries that are too old, the oldest entries while all are too large together, and
// remains of entries after a crash. It returns the removed entries. Files of an entry may be large:
// Trim takes a while, and stops between two entries when ctx ends.
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
			break // the following entries are newer
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

// RemoveOldest removes the oldest entries until that many bytes were freed, or all. Like
// [Store.Trim] it takes a while.
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

// unusedAfter is the age at which a note without a saved state is removed: a Put may be in progress
// before.
const unusedAfter = time.Hour

// tidy removes entries whose removal was interrupted, and notes without a saved state.
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
			_ = os.Remove(filepath.Join(s.dir, name.Name(), noteName)) // missing when a crash came before it was written
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

// diskBytes returns the disk space of the files below a path.
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

// writeSynced replaces a file atomically and syncs it.
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
