// Package archive moves the saved states of paused sandboxes to an object store, and fetches them from there.
//
// The state of a checkpoint is described by the object archives/CHECKPOINT, which is written after the blobs of its files. A checkpoint
// never changes, so that it can be stored again at any time, and only missing blobs are sent. The caller records that a state
// is stored before it removes the local files.
package archive

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sparse"
)

const (
	// Prefix begins the names of the objects that describe states.
	Prefix = "archives/"
	format = 1
	// NewPrefix begins the name of a directory that a fetch writes to. The sweep of checkpoints removes such directories.
	NewPrefix = ".new-"
)

// State describes a saved state in a store.
type State struct {
	Format     int                  `json:"format"`
	Checkpoint sandbox.CheckpointID `json:"checkpoint"`
	Sandbox    sandbox.ID           `json:"sandbox"`
	StoredAt   time.Time            `json:"stored_at"`
	// Installation is the server that stored it. Other servers do not remove it.
	Installation string `json:"installation"`
	Files        []File `json:"files"`
	// Parts are files that a restore needs beside the state, and that other states need as well. Their names have no slash.
	Parts []File `json:"parts,omitempty"`
}

// Size returns the bytes of the files of the state alone.
func (s *State) Size() (n int64) {
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}

// Source is a state on the disk of a server.
type Source struct {
	Owner        sandbox.ID
	ID           sandbox.CheckpointID
	Installation string
	// Dir has the files of the state, which must not change while they are stored.
	Dir string
	// Parts are the paths of files that a restore needs beside Dir.
	Parts []string
	// Unverified says that blobs that the bucket has are not read. A state that is stored each minute would otherwise be read each minute.
	Unverified bool
}

// File is a file of a state.
type File struct {
	// Name is its path below the directory of the state, with slashes.
	Name  string        `json:"name"`
	Size  int64         `json:"size"`
	Mode  os.FileMode   `json:"mode"`
	Blobs []object.Name `json:"blobs"`
}

// Store has saved states in an object store. It is safe for concurrent use.
type Store struct {
	objects *object.Store
	space   *ballast.Budget
}

// New returns the states in an object store. Space is the space of the disk to which they are fetched.
func New(objects *object.Store, space *ballast.Budget) *Store { return &Store{objects, space} }

// Close ends the use of the object store.
func (s *Store) Close() error { return s.objects.Close() }

// Put stores a state. It is in the store when Put returns nil, and may be
// there after an error. A state that is stored already is stored again, and only missing and damaged blobs are sent: the caller may remove the
// local files, so that Put reads the blobs that the bucket has, unless src says otherwise. Errors: Unavailable while unused
// data is being removed, and when the store cannot be reached.
func (s *Store) Put(ctx context.Context, src Source) (st State, sent object.Counts, err error) {
	u, err := s.objects.NewUpload(ctx)
	if err != nil {
		return st, sent, err
	}
	defer u.Close()
	if !src.Unverified {
		u.Verify()
	}
	st = State{Format: format, Checkpoint: src.ID, Sandbox: src.Owner, Installation: src.Installation, StoredAt: time.Now().UTC()}
	err = filepath.WalkDir(src.Dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(src.Dir, name)
		if err != nil {
			return err
		}
		f, err := upload(ctx, u, name, filepath.ToSlash(rel))
		st.Files = append(st.Files, f)
		return err
	})
	for _, name := range src.Parts {
		if err != nil {
			break
		}
		var f File
		f, err = upload(ctx, u, name, filepath.Base(name))
		st.Parts = append(st.Parts, f)
	}
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
		return st, sent, fmt.Errorf("archive the saved state %s: %w", src.ID, err)
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

// Place returns the path at which a server has a file of [State.Parts]. Errors: Invalid for a name that it does not know. A server whose
// workers have such files has no Place, and fetches none.
type Place func(name string) (string, error)

// Fetch writes a state to a directory, which appears when it is complete and on the disk, and its missing parts to their places. It does
// nothing if the directory exists, whose parent is made. The description must not be removed meanwhile: a collection then keeps its blobs. Errors:
// NotFound; Invalid when an object is damaged; DiskFull; Unavailable when the store cannot be reached. After an error there is no directory.
func (s *Store) Fetch(ctx context.Context, id sandbox.CheckpointID, dir string, place Place) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	st, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := durable.MkdirAll(parent); err != nil {
		return err
	}
	space, err := s.space.Reserve(parent, s.need(&st), "fetch the saved state")
	if err != nil {
		return err
	}
	defer space.Release()
	part, err := os.MkdirTemp(parent, NewPrefix)
	if err != nil {
		return fmt.Errorf("fetch the saved state %s: %w", id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("fetch the saved state %s: %w", id, err), os.RemoveAll(part))
		}
	}()
	if err := s.fetchParts(ctx, &st, space, place); err != nil {
		return err
	}
	for _, f := range st.Files {
		if f.Name != path.Clean(f.Name) || !filepath.IsLocal(f.Name) {
			return sandbox.Errorf(sandbox.Invalid, "the saved state has a file %.200q", f.Name)
		}
		if err := s.fetch(ctx, &f, space, filepath.Join(part, filepath.FromSlash(f.Name))); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if err := syncTree(part); err != nil {
		return err
	}
	if err := os.Rename(part, dir); err != nil {
		return err
	}
	return durable.Sync(parent)
}

// need returns the space that a state takes on the disk at most.
func (s *Store) need(st *State) (n int64) {
	for _, f := range slices.Concat(st.Files, st.Parts) {
		n += s.objects.DownloadBytes(f.Blobs, f.Size)
	}
	return n
}

// fetchParts writes the parts of a state that the server does not have.
func (s *Store) fetchParts(ctx context.Context, st *State, space *ballast.Reservation, place Place) error {
	if place == nil {
		return nil
	}
	for _, f := range st.Parts {
		to, err := place(f.Name)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		part := filepath.Join(filepath.Dir(to), NewPrefix+rand.Text())
		if err = s.fetch(ctx, &f, space, part); err == nil {
			err = os.Rename(part, to)
		}
		if err == nil {
			err = durable.Sync(filepath.Dir(to))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", f.Name, err), os.RemoveAll(part))
		}
	}
	return nil
}

// fetch writes a file of a state to a path that does not exist, and counts it as written.
func (s *Store) fetch(ctx context.Context, file *File, space *ballast.Reservation, name string) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.Mode.Perm()&0o700|0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := s.objects.Download(ctx, file.Blobs, file.Size, space.WriterAt(sparse.NewAt(f))); err != nil {
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

// Strays returns the states of an installation that were stored before a time of the bucket, and that known does not know.
func (s *Store) Strays(ctx context.Context, installation string, before time.Time, known func(sandbox.CheckpointID) (bool, error)) (ids []sandbox.CheckpointID, err error) {
	var old []sandbox.CheckpointID
	err = s.objects.List(ctx, Prefix, func(o object.Object) error {
		if o.At.Before(before) {
			old = append(old, sandbox.CheckpointID(strings.TrimPrefix(o.Key, Prefix)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range old {
		is, err := known(id)
		if err != nil {
			return nil, err
		}
		if is {
			continue
		}
		st, err := s.Get(ctx, id) // without memory of the others
		if err == nil && st.Installation == installation {
			ids = append(ids, id)
		} else if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return ids, nil
}

// Reach adds the blobs of all states in an object store to used. Errors: Invalid when a description is damaged: its blobs are unknown.
func Reach(ctx context.Context, objects *object.Store, used map[object.Name]bool) error {
	var ids []sandbox.CheckpointID
	err := objects.List(ctx, Prefix, func(o object.Object) error {
		ids = append(ids, sandbox.CheckpointID(strings.TrimPrefix(o.Key, Prefix)))
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids { // one description in memory at a time
		st, err := New(objects, nil).Get(ctx, id)
		if sandbox.CodeOf(err) == sandbox.NotFound { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range slices.Concat(st.Files, st.Parts) {
			for _, n := range f.Blobs {
				used[n] = true
			}
		}
	}
	return nil
}
