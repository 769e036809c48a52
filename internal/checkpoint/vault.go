package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	forksDir = "forks"
	// spareBytes stay free on the host's disk, whatever is saved.
	spareBytes = 256 << 20
	// diskRetry is the wait that a refusal because of a nearly full disk advises.
	diskRetry = time.Minute
)

// Vault is the directory of all saved states: dir/<sandbox>/<checkpoint> is a checkpoint of
// a sandbox, dir/forks/<checkpoint> a state from which children are being made. A state
// appears under its name only when it is complete; all other names are garbage.
type Vault struct {
	dir     string
	driver  driver.Checkpointer // nil when the driver cannot save
	records Records
	log     *slog.Logger

	mu    sync.Mutex
	forks map[string]bool // in use; guarded by mu
}

// Open makes the directory and returns its vault. Without dir, or a driver that can save,
// nothing can be saved.
func Open(dir string, d driver.Driver, records Records, log *slog.Logger) (*Vault, error) {
	v := &Vault{dir: dir, records: records, log: log, forks: map[string]bool{}}
	if dir == "" {
		return v, nil
	}
	if err := durable.MkdirAll(filepath.Join(dir, forksDir)); err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	if c, ok := d.(driver.Checkpointer); ok && d.Capabilities().Checkpoint {
		v.driver = c
	}
	return v, nil
}

// Dir returns the directory; "" when there is none.
func (v *Vault) Dir() string { return v.dir }

// Records returns the rows of the checkpoints.
func (v *Vault) Records() Records { return v.records }

// Checkpointer returns the driver as far as it saves and restores boxes. Errors: Unsupported.
func (v *Vault) Checkpointer() (driver.Checkpointer, error) {
	if v.driver == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server cannot save sandboxes: pause, checkpoints and forks are not available")
	}
	return v.driver, nil
}

// Path returns the place of a checkpoint of a sandbox.
func (v *Vault) Path(id sandbox.ID, c sandbox.CheckpointID) string {
	return filepath.Join(v.dir, string(id), string(c))
}

// Whole reports whether a complete checkpoint has that name: it may not be restorable on
// this host, and its memory may be damaged, but its files are there.
func (v *Vault) Whole(id sandbox.ID, c sandbox.CheckpointID) bool {
	if v.driver == nil || c == "" {
		return false
	}
	if sandbox.CodeOf(v.driver.CanRestore(v.Path(id, c))) != sandbox.NotFound {
		return true
	}
	layer, err := v.driver.OpenLayer(v.Path(id, c))
	return err == nil && layer.Close() == nil
}

// Verify returns an error when neither the memory in a checkpoint, unless that is lost
// anyway, nor the files beside it are as they were saved. Errors: Unsupported.
func (v *Vault) Verify(ctx context.Context, path, lost string) error {
	saver, err := v.Checkpointer()
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

// Restorable returns why the memory in a checkpoint cannot be brought back, or is
// not to be, and "" when it can. Errors: Unsupported when nothing of it can, or
// nothing else is wanted.
func (v *Vault) Restorable(path string, memory sandbox.MemoryPolicy) (lost string, err error) {
	saver, err := v.Checkpointer()
	if err != nil {
		return "", err
	}
	if memory == sandbox.MemoryDiscard {
		lost = "its memory was not wanted"
	} else if err = saver.CanRestore(path); err == nil {
		return "", nil
	} else if code := sandbox.CodeOf(err); code != sandbox.Unsupported && code != sandbox.NotFound {
		return "", fmt.Errorf("look at what was saved: %w", err) // perhaps it can be brought back the next time
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

// MakeOwner makes the directory that a checkpoint will be in. The directory's name is on
// the disk when makeOwner returns nil, also when an earlier call made the directory.
func (v *Vault) MakeOwner(path string) error {
	owner := filepath.Dir(path)
	if err := os.MkdirAll(owner, 0o700); err != nil {
		return fmt.Errorf("directory of checkpoints: %w", err)
	}
	if owner == filepath.Join(v.dir, forksDir) {
		return nil // nothing in it outlives the server
	}
	if err := durable.Sync(v.dir); err != nil {
		return fmt.Errorf("directory of checkpoints: %w", err)
	}
	return nil
}

// Room checks that the host has space for a checkpoint that may take so many bytes.
func (v *Vault) Room(need int64) error {
	free, err := v.free()
	if err != nil {
		return err
	}
	if free < need+spareBytes {
		return sandbox.Errorf(sandbox.DiskFull, "the host's disk is too full to save the sandbox, which may take %s", sandbox.ShowBytes(need>>20<<20))
	}
	return nil
}

// free returns the bytes that are free on the disk, fewer when it is short of inodes.
func (v *Vault) free() (int64, error) {
	space, err := ballast.Free(v.dir)
	return space.Usable(), err
}

// errDiskLow is wrapped by refusals because of the server's disk.
var errDiskLow = errors.New("the server's disk is nearly full")

// Enough refuses with code Unavailable when less than least is free on the disk.
func (v *Vault) Enough(least int64) error {
	if v.dir == "" || least <= 0 {
		return nil
	}
	space, err := ballast.Free(v.dir)
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

// Copy makes the checkpoint to of the checkpoint from, which is never changed: the two
// share their files where the file system can. When copy returns nil, to is on the disk.
func (v *Vault) Copy(from, to string) error {
	if err := v.MakeOwner(to); err != nil {
		return err
	}
	if err := durable.CopyDir(from, to); err != nil {
		return fmt.Errorf("copy checkpoint: %w", err)
	}
	return nil
}

// Size returns the bytes that a checkpoint takes.
func (v *Vault) Size(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// Remove removes one checkpoint of a sandbox; "" and what is not there are no error.
func (v *Vault) Remove(id sandbox.ID, c sandbox.CheckpointID) error {
	if v.dir == "" || c == "" {
		return nil
	}
	return os.RemoveAll(v.Path(id, c))
}

// RemoveAll removes all checkpoints of a sandbox.
func (v *Vault) RemoveAll(id sandbox.ID) error {
	if v.dir == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(v.dir, string(id)))
}

// List returns everything in the vault, by owner, without what belongs to forks.
func (v *Vault) List() (map[sandbox.ID][]string, error) {
	if v.dir == "" {
		return nil, nil
	}
	owners, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, err
	}
	found := map[sandbox.ID][]string{}
	for _, owner := range owners {
		if owner.Name() == forksDir {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(v.dir, owner.Name()))
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

// Tidy has the driver remove what nothing in the vault or in quarantine, and no box, needs.
func (v *Vault) Tidy(d driver.Driver, q *quarantine.Store) error {
	t, ok := d.(driver.Tidier)
	if !ok || v.dir == "" {
		return nil
	}
	owners, err := v.List()
	if err != nil {
		return err
	}
	var all []string
	for owner, names := range owners {
		for _, name := range names {
			all = append(all, filepath.Join(v.dir, string(owner), name))
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
func (v *Vault) RemoveOwner(owner sandbox.ID) {
	_ = os.Remove(filepath.Join(v.dir, string(owner))) // fails unless it is empty
}

// Fork returns a place for what children are made from, and a function that
// removes it when all are made.
func (v *Vault) Fork() (path string, release func() error) {
	name := string(sandbox.NewCheckpointID())
	path = filepath.Join(v.dir, forksDir, name)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forks[name] = true
	return path, func() error {
		defer func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			delete(v.forks, name)
		}()
		return os.RemoveAll(path)
	}
}

// SweepForks removes what no fork uses.
func (v *Vault) SweepForks() error {
	if v.dir == "" {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.forks) > 0 {
		return nil // the sweep after the forks removes the others
	}
	dir := filepath.Join(v.dir, forksDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
