// Package archive moves the saved states of paused sandboxes to an object store, and fetches them from there.
//
// The state of a checkpoint is described by the object archives/CHECKPOINT, which is written after the blobs of its files. A checkpoint
// never changes, so that it can be stored again at any time, and only missing blobs are sent. The caller records that a state
// is stored before it removes the local files.
package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Prefix begins the names of the objects that describe states.
	Prefix = "archives/"
	format = 1
	// newPrefix begins the name of a directory that a fetch writes to; the sweep of checkpoints removes such directories.
	newPrefix = ".new-"
	// spareBytes stay free on the disk.
	spareBytes = 256 << 20
)

// State describes a saved state in a store.
type State struct {
	Format     int                  `json:"format"`
	Checkpoint sandbox.CheckpointID `json:"checkpoint"`
	Sandbox    sandbox.ID           `json:"sandbox"`
	StoredAt   time.Time            `json:"stored_at"`
	Files      []File               `json:"files"`
}

// File is a file of a state.
type File struct {
	// Name is its path below the directory of the state, with slashes.
	Name  string        `json:"name"`
	Size  int64         `json:"size"`
	Mode  os.FileMode   `json:"mode"`
	Blobs []object.Name `json:"blobs"`
}

// Size returns the bytes of all files.
func (s *State) Size() (n int64) {
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}

// Store has saved states in an object store. It is safe for concurrent use.
type Store struct{ objects *object.Store }

// New returns the states in an object store.
func New(objects *object.Store) *Store { return &Store{objects} }

// Put stores the state in a directory, whose files must not change meanwhile. The state is in the store when Put returns nil, and may be
// there after an error. A state that is stored already is stored again, and only missing blobs are sent. Errors: Unavailable while unused
// data is being removed, and when the store cannot be reached.
func (s *Store) Put(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID, dir string) (st State, sent object.Counts, err error) {
	u, err := s.objects.NewUpload(ctx)
	if err != nil {
		return st, sent, err
	}
	defer u.Close()
	st = State{Format: format, Checkpoint: id, Sandbox: owner, StoredAt: time.Now().UTC()}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f, err := upload(ctx, u, name, filepath.ToSlash(rel))
		st.Files = append(st.Files, f)
		return err
	})
	sent, werr := u.Wait() // its error is the cause of the other
	if werr != nil {
		err = werr
	}
	if err == nil && len(st.Files) == 0 {
		err = sandbox.Errorf(sandbox.NotFound, "the saved state has no files")
	}
	if err == nil {
		err = s.describe(ctx, &st)
	}
	if err != nil {
		return st, sent, fmt.Errorf("archive the saved state %s: %w", id, err)
	}
	return st, sent, nil
}

// upload sends a file.
func upload(ctx context.Context, u *object.Upload, name, rel string) (_ File, err error) {
	info, err := os.Lstat(name)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	file := File{Name: rel, Size: info.Size(), Mode: info.Mode().Perm()}
	if file.Blobs, err = u.File(f, file.Size); err != nil {
		return file, fmt.Errorf("read %s: %w", name, err)
	}
	return file, context.Cause(ctx)
}

// describe writes the description of a state.
func (s *Store) describe(ctx context.Context, st *State) error {
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if len(data) > object.MaxNamed {
		return sandbox.Errorf(sandbox.TooLarge, "the saved state has too many files")
	}
	if err := s.objects.Put(ctx, Prefix+string(st.Checkpoint), data); err != nil {
		return err
	}
	return s.objects.Flush()
}

// Get returns the description of a state. Errors: NotFound; Invalid when it is damaged; Unsupported when another version wrote it.
func (s *Store) Get(ctx context.Context, id sandbox.CheckpointID) (st State, err error) {
	data, err := s.objects.Get(ctx, Prefix+string(id))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return st, sandbox.Wrap(sandbox.NotFound, err, "the bucket %s does not have the saved state %s", s.objects.URL(), id)
	}
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, sandbox.Wrap(sandbox.Invalid, err, "the object %s%s of the bucket %s is damaged", Prefix, id, s.objects.URL())
	}
	if st.Format != format || st.Checkpoint != id {
		return st, sandbox.Errorf(sandbox.Unsupported, "the object %s%s of the bucket %s is of format %d and of the state %.80q; this program supports format %d", Prefix, id, s.objects.URL(), st.Format, st.Checkpoint, format)
	}
	return st, nil
}

// Fetch writes a state to a directory, which appears when it is complete and on the disk; it does nothing if the directory exists. Its parent must
// exist. Errors: NotFound; Invalid when an object is damaged; DiskFull; Unavailable when the store cannot be reached. After an error there is no directory.
func (s *Store) Fetch(ctx context.Context, id sandbox.CheckpointID, dir string) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if hold, err := s.objects.Hold(ctx); err == nil {
		defer hold.Release(ctx)
	} else if ctx.Err() != nil || errors.Is(err, object.ErrCollecting) {
		return err
	} // else the bucket cannot be written, because it is full for example: what is missing is an error
	st, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := s.checkSpace(&st, filepath.Dir(dir)); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), newPrefix)
	if err != nil {
		return fmt.Errorf("fetch the saved state %s: %w", id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("fetch the saved state %s: %w", id, err), os.RemoveAll(part))
		}
	}()
	for _, f := range st.Files {
		if err := s.fetch(ctx, &f, part); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if err := syncTree(part); err != nil {
		return err
	}
	if err := os.Rename(part, dir); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(dir))
}

// checkSpace returns an error unless the disk has space for a state.
func (s *Store) checkSpace(st *State, dir string) error {
	var need int64
	for _, f := range st.Files {
		need += s.objects.DownloadBytes(f.Blobs, f.Size)
	}
	have, err := ballast.Free(dir)
	if err == nil && have.Usable() < need+spareBytes {
		err = sandbox.Errorf(sandbox.DiskFull, "the host's disk is too full to fetch the saved state, which takes %s", sandbox.ShowBytes((need+1<<20-1)>>20<<20))
	}
	return err
}

// fetch writes a file of a state into dir.
func (s *Store) fetch(ctx context.Context, file *File, dir string) (err error) {
	if file.Name != path.Clean(file.Name) || !filepath.IsLocal(file.Name) {
		return sandbox.Errorf(sandbox.Invalid, "the saved state has a file %.200q", file.Name)
	}
	name := filepath.Join(dir, filepath.FromSlash(file.Name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.Mode.Perm()&0o700|0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := s.objects.Download(ctx, file.Blobs, file.Size, f); err != nil {
		return err
	}
	if err := f.Truncate(file.Size); err != nil { // zero bytes at its end were not written
		return err
	}
	return f.Sync()
}

// syncTree brings the names in a directory and below it to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return durable.Sync(name)
	})
}

// Remove removes the description of a state, which may be missing. Its blobs stay until a collection.
func (s *Store) Remove(ctx context.Context, id sandbox.CheckpointID) error {
	return s.objects.Delete(ctx, Prefix+string(id))
}

// Sweep removes the descriptions of states that are not in use and were written before a time of the bucket. It returns how many it has removed.
func (s *Store) Sweep(ctx context.Context, before time.Time, used func(sandbox.CheckpointID) bool) (n int, err error) {
	err = s.objects.List(ctx, Prefix, func(o object.Object) error {
		id := sandbox.CheckpointID(strings.TrimPrefix(o.Key, Prefix))
		if used(id) || !o.At.Before(before) {
			return nil
		}
		n++
		return s.Remove(ctx, id)
	})
	return n, err
}

// Reach adds the blobs of all states to used. Errors: Invalid when a description is damaged: its blobs are unknown.
func (s *Store) Reach(ctx context.Context, used map[object.Name]bool) error {
	var ids []sandbox.CheckpointID
	err := s.objects.List(ctx, Prefix, func(o object.Object) error {
		ids = append(ids, sandbox.CheckpointID(strings.TrimPrefix(o.Key, Prefix)))
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids { // one description in memory at a time
		st, err := s.Get(ctx, id)
		if sandbox.CodeOf(err) == sandbox.NotFound { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range st.Files {
			for _, n := range f.Blobs {
				used[n] = true
			}
		}
	}
	return nil
}
