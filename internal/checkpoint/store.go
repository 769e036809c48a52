package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	forksDir = "forks"
	// spareBytes stay free on the host's disk at every save.
	spareBytes = 256 << 20
	// diskRetry is the wait that a refusal because of a nearly full disk advises.
	diskRetry = time.Minute
)

// Store is the directory of all saved states: dir/<sandbox>/<checkpoint> is a checkpoint of a
// sandbox, dir/forks/<checkpoint> a state from which children are being made. A state appears under
// its name only when it is complete; all other names are garbage.
//
// Servers that each own a part of the sandboxes share the directory. The directories of sandboxes and their checkpoints belong to
// the owner of the sandbox, and each server has the states of its forks in a directory of its own, dir/forks/<part>.
type Store struct {
	dir     string
	owner   *sandbox.Ownership
	driver  driver.Checkpointer // nil when the driver cannot save
	records Records
	log     *slog.Logger

	mu    sync.Mutex
	forks map[string]bool // in use; guarded by mu
}

// Open makes the directory and returns its store for the owner of sandboxes; nil owns all. Without dir, or a driver that can save,
// nothing can be saved.
func Open(dir string, owner *sandbox.Ownership, d driver.Driver, records Records, log *slog.Logger) (*Store, error) {
	s := &Store{dir: dir, owner: owner, records: records, log: log, forks: map[string]bool{}}
	if dir == "" {
		return s, nil
	}
	if err := durable.MkdirAll(s.forkDir()); err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	if c, ok := d.(driver.Checkpointer); ok && d.Capabilities().Checkpoint {
		s.driver = c
	}
	return s, nil
}

// Dir returns the directory; "" when there is none.
func (s *Store) Dir() string { return s.dir }

// Records returns the rows of the checkpoints.
func (s *Store) Records() Records { return s.records }

// Checkpointer returns the driver's interface for saving and restoring boxes. Errors: Unsupported.
func (s *Store) Checkpointer() (driver.Checkpointer, error) {
	if s.driver == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server cannot save sandboxes: pause, checkpoints and forks are not available")
	}
	return s.driver, nil
}

// Path returns the path of a checkpoint of a sandbox.
func (s *Store) Path(id sandbox.ID, c sandbox.CheckpointID) string {
	return filepath.Join(s.dir, string(id), string(c))
}

// IsComplete reports whether a complete checkpoint has that name: it may not be restorable on this
// host, and its memory may be damaged, but its files exist.
func (s *Store) IsComplete(id sandbox.ID, c sandbox.CheckpointID) bool {
	if s.driver == nil || c == "" {
		return false
	}
	if sandbox.CodeOf(s.driver.CanRestore(s.Path(id, c))) != sandbox.NotFound {
		return true
	}
	layer, err := s.driver.OpenLayer(s.Path(id, c))
	return err == nil && layer.Close() == nil
}

// Verify returns an error unless the memory in a checkpoint, except lost memory, or the files
// beside it are as they were saved. Errors: Unsupported.
func (s *Store) Verify(ctx context.Context, path, lost string) error {
	saver, err := s.Checkpointer()
	if err != nil {
		return err
	}
	memory, files := saver.Verify(ctx, path)
	if files == nil || lost == "" && memory == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return sandbox.Wrap(sandbox.Unsupported, errors.Join(memory, files), "%s", sandbox.Explain("the checkpoint cannot be brought back, neither its memory nor its files", files))
}

// Restorable returns the reason why the memory in a checkpoint cannot or must not be restored, and
// "" if it can. Errors: Unsupported when neither memory nor files can be restored, or the policy
// requires memory.
func (s *Store) Restorable(path string, memory sandbox.MemoryPolicy) (lost string, err error) {
	saver, err := s.Checkpointer()
	if err != nil {
		return "", err
	}
	if memory == sandbox.MemoryDiscard {
		lost = "its memory was not wanted"
	} else if err = saver.CanRestore(path); err == nil {
		return "", nil
	} else if code := sandbox.CodeOf(err); code != sandbox.Unsupported && code != sandbox.NotFound {
		return "", fmt.Errorf("look at what was saved: %w", err) // a later attempt may succeed
	} else if errors.Is(err, driver.ErrNoMemory) {
		lost = "it was saved without its memory"
	} else {
		lost = sandbox.Explain("its memory cannot be brought back on this host", err)
	}
	if memory == sandbox.MemoryRequire {
		return "", sandbox.Wrap(sandbox.Unsupported, err, "%s", lost)
	}
	layer, layerErr := saver.OpenLayer(path)
	if layerErr != nil {
		return "", sandbox.Wrap(sandbox.Unsupported, errors.Join(err, layerErr), "%s; %s", lost, sandbox.Explain("its files cannot be brought back either", layerErr))
	}
	return lost, layer.Close()
}

// FilesOnly reports whether a checkpoint has its files without its memory.
func (s *Store) FilesOnly(path string) bool {
	return s.driver != nil && errors.Is(s.driver.CanRestore(path), driver.ErrNoMemory)
}

// OpenLayer returns the files in a checkpoint, which the caller closes. Errors: Unsupported, NotFound.
func (s *Store) OpenLayer(path string) (io.ReadCloser, error) {
	saver, err := s.Checkpointer()
	if err != nil {
		return nil, err
	}
	return saver.OpenLayer(path)
}

// MakeOwner makes the directory of a checkpoint. The directory's name is on the disk when MakeOwner
// returns nil, also when an earlier call made the directory.
func (s *Store) MakeOwner(path string) error {
	owner := filepath.Dir(path)
	if err := os.MkdirAll(owner, 0o700); err != nil {
		return fmt.Errorf("directory of checkpoints: %w", err)
	}
	if owner == s.forkDir() {
		return nil // nothing in it outlives the server
	}
	if err := durable.Sync(s.dir); err != nil {
		return fmt.Errorf("directory of checkpoints: %w", err)
	}
	return nil
}

// CheckSpace returns an error unless the host has space for a checkpoint of need bytes.
func (s *Store) CheckSpace(need int64) error {
	free, err := s.free()
	if err != nil {
		return err
	}
	if free < need+spareBytes {
		return sandbox.Errorf(sandbox.DiskFull, "the host's disk is too full to save the sandbox, which may take %s", sandbox.ShowBytes(need>>20<<20))
	}
	return nil
}

// free returns the free bytes of the disk, fewer when it is short of inodes.
func (s *Store) free() (int64, error) {
	space, err := ballast.Free(s.dir)
	return space.Usable(), err
}

// errDiskLow is wrapped by refusals because of the server's disk.
var errDiskLow = errors.New("the server's disk is nearly full")

// CheckFree returns an error with code Unavailable if less than least bytes of the disk are free.
func (s *Store) CheckFree(least int64) error {
	if s.dir == "" || least <= 0 {
		return nil
	}
	space, err := ballast.Free(s.dir)
	if err != nil || space.Usable() >= least {
		return err
	}
	have := fmt.Sprintf("%d MiB", space.Bytes>>20)
	if space.Usable() < space.Bytes {
		have = fmt.Sprintf("%d inodes, which count as 64 KiB each,", space.Inodes)
	}
	e := sandbox.Wrap(sandbox.Unavailable, errDiskLow, "the server's disk is nearly full: %s are free, and this needs %s; delete something, or ask an administrator", have, sandbox.ShowBytes(least))
	e.RetryAfter = diskRetry
	return e
}

// Copy copies the checkpoint from, which never changes: the two share their files where the file
// system can. When Copy returns nil, to is on the disk.
func (s *Store) Copy(from, to string) error {
	if err := s.MakeOwner(to); err != nil {
		return err
	}
	if err := durable.CopyDir(from, to); err != nil {
		return fmt.Errorf("copy checkpoint: %w", err)
	}
	return nil
}

// Size returns the disk space of the files of a checkpoint, in which holes count nothing.
func (s *Store) Size(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		n += st.Blocks * 512
		return nil
	})
	return n, err
}

// SizeOrLog is Size that logs an error and returns the size so far.
func (s *Store) SizeOrLog(id sandbox.ID, path string) int64 {
	n, err := s.Size(path)
	if err != nil {
		s.log.Error("size of checkpoint not known", "sandbox", id, "error", err)
	}
	return n
}

// Remove removes a checkpoint of a sandbox; "" and a missing checkpoint are no error.
func (s *Store) Remove(id sandbox.ID, c sandbox.CheckpointID) error {
	if s.dir == "" || c == "" {
		return nil
	}
	return os.RemoveAll(s.Path(id, c))
}

// RemoveAll removes all checkpoints of a sandbox.
func (s *Store) RemoveAll(id sandbox.ID) error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.dir, string(id)))
}

// List returns everything in the store, by owner, without the states of forks and the sandboxes of other servers.
func (s *Store) List() (map[sandbox.ID][]string, error) {
	if s.dir == "" {
		return nil, nil
	}
	owners, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	found := map[sandbox.ID][]string{}
	for _, owner := range owners {
		if owner.Name() == forksDir || !s.owner.Owns(sandbox.ID(owner.Name())) {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(s.dir, owner.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		found[sandbox.ID(owner.Name())] = names
	}
	return found, nil
}

// CheckFiles returns the reason why the files of a running sandbox cannot be saved; nil if it does not find out in
// time. It reads all of them, and waits for its turn until ctx ends. Errors: as [driver.Snapshotter].WriteNames, except Timeout.
func (s *Store) CheckFiles(ctx context.Context, id sandbox.ID) error {
	reader, ok := s.driver.(driver.Snapshotter)
	if !ok {
		return nil
	}
	var err error
	_, _ = backoff.Retry(ctx, func() (struct{}, error) { // the last error is err
		if err = reader.WriteNames(ctx, id, io.Discard); !errors.Is(err, driver.ErrBusy) {
			return struct{}{}, nil
		}
		return struct{}{}, err
	}, retry.Pauses(100*time.Millisecond, 5*time.Second), retry.Forever())
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) && (errors.Is(err, driver.ErrBusy) || errors.Is(err, context.DeadlineExceeded))
	if late || sandbox.CodeOf(err) == sandbox.Timeout {
		return nil
	}
	return err
}

// Tidy has the driver remove files that no box, and nothing in the store or in quarantine, needs. An owner of a part does not know
// all boxes, and leaves the files to an owner of all.
func (s *Store) Tidy(d driver.Driver, q *quarantine.Store) error {
	t, ok := d.(driver.Tidier)
	if !ok || s.dir == "" || s.owner.Part() != "" {
		return nil
	}
	owners, err := s.List()
	if err != nil {
		return err
	}
	var all []string
	for owner, names := range owners {
		for _, name := range names {
			all = append(all, filepath.Join(s.dir, string(owner), name))
		}
	}
	entries, err := q.List()
	if err != nil {
		return err
	}
	for _, e := range entries {
		all = append(all, q.Path(e.ID))
	}
	return t.Tidy(all)
}

// RemoveOwner removes the directory of an owner when it is empty.
func (s *Store) RemoveOwner(owner sandbox.ID) {
	_ = os.Remove(filepath.Join(s.dir, string(owner))) // fails unless it is empty
}

// forkDir is the directory of the states from which this server makes children.
func (s *Store) forkDir() string { return filepath.Join(s.dir, forksDir, s.owner.Part()) }

// Fork returns a path for the state that children are made from, or that is sent to an object store, and a function that removes it
// afterwards.
func (s *Store) Fork() (path string, release func() error) {
	name := string(sandbox.NewCheckpointID())
	path = filepath.Join(s.forkDir(), name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forks[name] = true
	return path, func() error {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.forks, name)
		}()
		return os.RemoveAll(path)
	}
}

// SweepForks removes states that no fork or upload uses. Those that are being written have other names, and are removed when nothing is in use.
// The directories of other servers stay.
func (s *Store) SweepForks() error {
	if s.dir == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := removeEntries(s.forkDir(), func(name string) bool {
		_, whole := sandbox.ParseID(name)
		return !s.forks[name] && (len(s.forks) == 0 || whole)
	})
	if s.owner.Part() == "" {
		return err
	}
	return errors.Join(err, removeEntries(filepath.Join(s.dir, forksDir), s.owner.Sweeps))
}

// removeEntries removes the entries of a directory for which remove returns true.
func removeEntries(dir string, remove func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if remove(e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
