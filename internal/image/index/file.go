package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/lock"
)

// version is the format that is written; version 1 can be read. Programs that do not know marks
// refuse version 2.
const version = 2

// File is the index of a store on the disk, and the index of its OCI layout, which is derived from
// it. It is safe for concurrent use, also by several processes.
type File struct {
	path, lockPath string
	layout         archive.Layout
	named          []string // directories with the files that the index names

	mu     sync.Mutex
	cached *Index     // guarded by mu
	info   Generation // of cached; guarded by mu
}

// Open returns the index at a path, with the lock file of its changes. It writes the index of a
// store whose directories named are empty. It also repeats the last step of a change, after which
// a crash may have come. From then on a missing index is an error.
func Open(ctx context.Context, path, lockPath string, layout archive.Layout, named ...string) (*File, error) {
	f := &File{path: path, lockPath: lockPath, layout: layout, named: append(named, layout.BlobsDir())}
	ix, unlock, err := f.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return f, f.Write(ix)
	}
	return f, f.writeLayout(ix)
}

// Load returns the index as it is on the disk now, which the caller must not change. It reads the
// file only after a change.
func (f *File) Load() (*Index, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.missing()
	}
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	if f.cached != nil && f.info.Same(Generation{info}) {
		return f.cached, nil
	}
	ix, err := read(f.path)
	if err != nil {
		return nil, err
	}
	f.cached, f.info = ix, Generation{info}
	return ix, nil
}

// missing returns an empty index for a new store, and an error if there are files that an index
// named: a deletion of unused files would delete all of them.
func (f *File) missing() (*Index, error) {
	for _, dir := range f.named {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read image index: %w", err)
		}
		if len(entries) > 0 {
			return nil, fmt.Errorf("image index %s is missing, and there are files of images in %s; nothing was deleted; %s", f.path, dir, advice(f.path))
		}
	}
	return &Index{Version: version}, nil
}

// advice says how to repair a missing or damaged index.
func advice(path string) string {
	return fmt.Sprintf("put the file back, for example from a backup of the server, or move %s away to begin without images: "+
		"built-in images are built again by `modbox images build`, pulled images are pulled again, snapshots and changed root filesystems are only there", filepath.Dir(path))
}

func read(path string) (*Index, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	var ix Index
	if err := json.Unmarshal(data, &ix); err != nil {
		return nil, fmt.Errorf("image index %s is damaged: %w; %s", path, err, advice(path))
	}
	if ix.Version < 1 {
		return nil, fmt.Errorf("image index %s is damaged: it has no version; %s", path, advice(path))
	}
	if ix.Version > version {
		return nil, fmt.Errorf("read image index %s: its version is %d, this program knows %d", path, ix.Version, version)
	}
	return &ix, nil
}

// Lock returns the index, which only the caller changes until unlock.
func (f *File) Lock(ctx context.Context) (ix *Index, unlock func(), err error) {
	unlock, err = lock.File(ctx, f.lockPath, nil)
	if err != nil {
		return nil, nil, err
	}
	return f.locked(unlock)
}

// TryLock is [File.Lock] if no other caller has the lock. Otherwise it waits until the lock is free,
// and returns nil without the lock.
func (f *File) TryLock(ctx context.Context) (ix *Index, unlock func(), err error) {
	unlock, free, err := lock.Try(f.lockPath)
	if err != nil {
		return nil, nil, err
	}
	if free {
		return f.locked(unlock)
	}
	if unlock, err = lock.File(ctx, f.lockPath, nil); err != nil {
		return nil, nil, err
	}
	unlock()
	return nil, nil, nil
}

// locked reads the index for the holder of the lock.
func (f *File) locked(unlock func()) (*Index, func(), error) {
	ix, err := read(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		ix, err = f.missing()
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return ix, unlock, nil
}

// Write replaces the index, and the index of the layout after it. The caller holds the lock.
func (f *File) Write(ix *Index) error {
	ix.Version = version
	data, err := json.MarshalIndent(ix, "", " ")
	if err != nil {
		return fmt.Errorf("write image index: %w", err)
	}
	if err := durable.WriteFile(f.path, data); err != nil {
		return err
	}
	return f.writeLayout(ix)
}

func (f *File) writeLayout(ix *Index) error {
	var entries []archive.Entry
	for _, rec := range ix.Images {
		e := archive.Entry{Ref: rec.Manifest}
		if rec.Current && rec.Owner == "" {
			e.Name = rec.Ref()
		}
		entries = append(entries, e)
	}
	return f.layout.WriteIndex(entries)
}

// Generation identifies the content of an index: each change replaces the file.
type Generation struct{ info fs.FileInfo }

// Generation returns the generation of the index on the disk.
func (f *File) Generation() (Generation, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return Generation{}, fmt.Errorf("read image index: %w", err)
	}
	return Generation{info}, nil
}

// Same reports whether two generations have the same content.
func (g Generation) Same(other Generation) bool {
	return os.SameFile(g.info, other.info) && g.info.ModTime().Equal(other.info.ModTime())
}
