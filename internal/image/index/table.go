package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/lock"
)

// Rows are the records of an image directory in a database. Its methods call no function of the
// image store. They are safe for concurrent use, also by several processes.
type Rows interface {
	// Images returns all records, in the order of their positions. Errors: ErrNoRows.
	Images(ctx context.Context) ([]Record, error)
	// ChangeImages adds or replaces the records in put, and removes the records with the keys in
	// remove, in one transaction, which is on the disk when it returns nil. Errors: ErrNoRows.
	ChangeImages(ctx context.Context, put []Record, remove []string) error
	// StoredBlobs returns the manifest and the configuration of an image whose other files are in an object store. Errors: NotFound when they
	// are not.
	StoredBlobs(ctx context.Context, rec *Record) (map[v1.Hash][]byte, error)
}

// ErrNoRows is the error of [Rows] without a database. The descriptors are the index then.
var ErrNoRows = errors.New("there is no database for the image index")

// Options describe an image directory.
type Options struct {
	// Dir is the image directory. It exists.
	Dir string
	// Lock is the lock file of changes.
	Lock string
	// Images is the directory of the root filesystems: HEX.erofs for the digest sha256:HEX.
	Images string
	// Layout has the OCI images. Its index is derived from the records.
	Layout archive.Layout
	// Rows are the records in the database of the server; nil without one.
	Rows Rows
	// Log receives what Open adopts.
	Log *slog.Logger
}

// Table is the index of a store on the disk, and the index of its OCI layout, which is derived from
// it. It is safe for concurrent use, also by several processes.
type Table struct {
	lockPath string
	images   string // see Options
	layout   archive.Layout
	rows     Rows
	log      *slog.Logger
	dir      directory

	mu     sync.Mutex
	cached *Index     // guarded by mu
	info   Generation // of cached; guarded by mu
}

// Open returns the index of a directory. It makes the index of a directory without images. From then
// on a missing index is an error. It makes the rows and descriptors complete, as the package comment
// says, and repeats the last step of a change, after which a crash may have come.
func Open(ctx context.Context, o Options) (*Table, error) {
	t := &Table{lockPath: o.Lock, images: o.Images, layout: o.Layout, rows: o.Rows, log: o.Log, dir: directory{o.Dir}}
	if t.rows == nil {
		t.rows = noRows{}
	}
	unlock, err := lock.File(ctx, t.lockPath, nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, _, err := t.dir.readFormat(); errors.Is(err, errMissing) {
		if err := t.begin(); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(t.dir.removeParts(), t.adopt(ctx)); err != nil {
		return nil, err
	}
	ix, err := t.Load()
	if err != nil {
		return nil, err
	}
	if !ix.rewrite && !t.dir.isWhole() {
		if err := t.dir.stamp(whole); err != nil {
			return nil, err
		}
	}
	return t, t.writeLayout(ix)
}

// begin makes the index of a directory without images.
func (t *Table) begin() error {
	if err := t.checkEmpty(t.dir.format()); err != nil {
		return err
	}
	if err := durable.MkdirAll(t.dir.records()); err != nil {
		return err
	}
	return t.dir.writeFormat()
}

// checkEmpty returns an error if there are files that an index named: a deletion of unused files would
// delete all of them. The file or directory with the index is missing.
func (t *Table) checkEmpty(missing string) error {
	for _, dir := range []string{t.images, t.layout.BlobsDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read image index: %w", err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("image index %s is missing, and there are files of images in %s; nothing was deleted; %s", missing, dir, t.dir.advice())
		}
	}
	return nil
}

// Load returns the index as it is now, which the caller must not change. It reads it only after a
// change.
func (t *Table) Load() (*Index, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := t.Generation()
	if err != nil {
		return nil, err
	}
	if t.cached != nil && t.info.Same(now) {
		return t.cached, nil
	}
	ix, err := t.read(context.Background()) // a local read
	if err != nil {
		return nil, err
	}
	ix.sizes = sync.OnceValue(ix.sizesOf)
	t.cached, t.info = ix, now
	return ix, nil
}

// read reads the index.
func (t *Table) read(ctx context.Context) (*Index, error) {
	v, list, err := t.dir.readFormat()
	if errors.Is(err, errMissing) {
		return nil, cmp.Or(t.checkEmpty(t.dir.format()), err)
	}
	if err != nil {
		return nil, err
	}
	if v < version {
		return &Index{Images: list, rewrite: true}, nil
	}
	list, err = t.rows.Images(ctx)
	if errors.Is(err, ErrNoRows) {
		if list, err = t.dir.readAll(); errors.Is(err, fs.ErrNotExist) {
			err = cmp.Or(t.checkEmpty(t.dir.records()), err)
		}
		if err == nil {
			t.reconcile(list)
			err = t.complete(list)
		}
	}
	if err != nil {
		return nil, err
	}
	sortRecords(list)
	return &Index{Images: list}, nil
}

// Lock returns the index, which only the caller changes until unlock.
func (t *Table) Lock(ctx context.Context) (ix *Index, unlock func(), err error) {
	unlock, err = lock.File(ctx, t.lockPath, nil)
	if err != nil {
		return nil, nil, err
	}
	return t.locked(unlock)
}

// TryLock is [Table.Lock] if no other caller has the lock. Otherwise it waits until the lock is free,
// and returns nil without the lock.
func (t *Table) TryLock(ctx context.Context) (ix *Index, unlock func(), err error) {
	unlock, free, err := lock.Try(t.lockPath)
	if err != nil {
		return nil, nil, err
	}
	if free {
		return t.locked(unlock)
	}
	if unlock, err = lock.File(ctx, t.lockPath, nil); err != nil {
		return nil, nil, err
	}
	unlock()
	return nil, nil, nil
}

// locked reads the index for the holder of the lock.
func (t *Table) locked(unlock func()) (*Index, func(), error) {
	ix, err := t.Load()
	if err == nil && !ix.rewrite && !t.dir.isWhole() { // a process was killed, perhaps after its commit
		if err = t.dir.stamp(whole); err == nil {
			ix, err = t.Load()
		}
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return ix.clone(), unlock, nil
}

// Write replaces the index, and the index of the layout after it. The caller holds the lock. On an
// error the index is as before, unless the file system failed after the change.
func (t *Table) Write(ix *Index) error {
	put, remove, before := ix.changes()
	if len(put) == 0 && len(remove) == 0 && !ix.rewrite {
		return nil
	}
	if ix.rewrite {
		if err := t.dir.clear(); err != nil {
			return err
		}
	}
	if err := t.dir.stamp(changing); err != nil {
		return err
	}
	err := t.dir.write(put)
	if err == nil {
		err = t.rows.ChangeImages(context.Background(), put, remove) // it is not undone in its middle
	}
	if err != nil && !errors.Is(err, ErrNoRows) {
		return errors.Join(err, t.undo(put, before))
	}
	if err := t.dir.remove(remove); err != nil {
		return err
	}
	if ix.rewrite {
		if err := t.dir.writeFormat(); err != nil {
			return err
		}
	}
	if err := t.dir.stamp(whole); err != nil {
		return err
	}
	if err := t.remember(ix); err != nil {
		return err
	}
	return t.writeLayout(ix)
}

// undo makes the descriptors of put as before.
func (t *Table) undo(put []Record, before map[string]Record) error {
	var old []Record
	var added []string
	for i := range put {
		key := put[i].Key()
		if rec, existed := before[key]; existed {
			old = append(old, rec)
		} else {
			added = append(added, key)
		}
	}
	return errors.Join(t.dir.write(old), t.dir.remove(added), t.dir.stamp(whole))
}

// remember keeps an index that was written for Load.
func (t *Table) remember(ix *Index) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := t.Generation()
	if err != nil {
		return err
	}
	cached := ix.clone()
	cached.base, cached.rewrite = nil, false
	sortRecords(cached.Images)
	cached.sizes = sync.OnceValue(cached.sizesOf)
	t.cached, t.info = cached, now
	return nil
}

// changes returns the records to add or replace, the keys of records to remove, and the records
// before. It gives new records their positions.
func (ix *Index) changes() (put []Record, remove []string, before map[string]Record) {
	before = map[string]Record{}
	last := int64(0)
	for _, r := range ix.base {
		before[r.Key()] = r
		last = max(last, r.Position)
	}
	now := map[string]Record{}
	for i := range ix.Images {
		r := &ix.Images[i]
		if r.Position == 0 {
			last++
			r.Position = last
		}
		last = max(last, r.Position)
		now[r.Key()] = *r
	}
	for key, r := range now {
		if old, existed := before[key]; ix.rewrite || !existed || !reflect.DeepEqual(old, r) {
			put = append(put, r)
		}
	}
	sortRecords(put)
	for key := range before {
		if _, stays := now[key]; !stays {
			remove = append(remove, key)
		}
	}
	slices.Sort(remove)
	if len(now) < len(ix.Images) { // a change made two records the same entry
		ix.Images = slices.Collect(maps.Values(now))
		sortRecords(ix.Images)
	}
	return put, remove, before
}

func (t *Table) writeLayout(ix *Index) error {
	var entries []archive.Entry
	for _, rec := range ix.Images {
		e := archive.Entry{Ref: rec.Manifest}
		if rec.Current && rec.Owner == "" {
			e.Name = rec.Ref()
		}
		entries = append(entries, e)
	}
	return t.layout.WriteIndex(entries)
}

// rootfs returns the path of a root filesystem.
func (t *Table) rootfs(digest string) string {
	return filepath.Join(t.images, strings.TrimPrefix(digest, "sha256:")+".erofs")
}

// Generation identifies the content of an index: each change replaces the files.
type Generation struct{ format, change fs.FileInfo }

// Generation returns the generation of the index on the disk.
func (t *Table) Generation() (g Generation, err error) {
	if g.format, err = os.Stat(t.dir.format()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Generation{}, fmt.Errorf("read image index: %w", err)
	}
	if g.change, err = os.Stat(t.dir.generation()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Generation{}, fmt.Errorf("read image index: %w", err)
	}
	return g, nil
}

// Same reports whether two generations have the same content.
func (g Generation) Same(other Generation) bool {
	same := func(a, b fs.FileInfo) bool {
		return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
	}
	return same(g.format, other.format) && (same(g.change, other.change) || g.change == nil && other.change == nil)
}

// noRows are the rows of a directory without a database.
type noRows struct{}

func (noRows) Images(context.Context) ([]Record, error) { return nil, ErrNoRows }

func (noRows) ChangeImages(context.Context, []Record, []string) error { return ErrNoRows }

func (noRows) StoredBlobs(context.Context, *Record) (map[v1.Hash][]byte, error) {
	return nil, ErrNoRows
}
