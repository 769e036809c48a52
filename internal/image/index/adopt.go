package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// adopt makes the rows complete, and the descriptors. The caller holds the lock. It can be
// interrupted and repeated at any point.
func (t *Table) adopt(ctx context.Context) error {
	v, old, err := t.dir.readFormat()
	if err != nil {
		return err
	}
	rows, err := t.rows.Images(ctx)
	if errors.Is(err, ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if v < version {
		t.log.Info("taking over the images of an earlier version", "images", len(old))
		return t.Write(&Index{Images: old, base: rows, rewrite: true})
	}
	ix := (&Index{Images: rows}).clone()
	added, lost, err := t.compare(ctx, ix)
	if err != nil {
		return err
	}
	if len(added) > 0 {
		t.log.Info("adopting images that the database does not have", "images", len(added))
		ix.Images = append(ix.Images, added...)
		t.reconcile(ix.Images)
	}
	if len(lost) > 0 {
		t.log.Warn("the database has images whose files do not exist; their records are removed", "images", len(lost))
		ix = ix.Keep(func(r *Record) bool { return !lost[r.Key()] })
	}
	if err := t.complete(ix.Images); err != nil {
		return err
	}
	return t.Write(ix)
}

// complete lists what lies below root filesystems, from their files, in records without such a list:
// programs that know no layers lose it. A file that is missing or damaged has none, because no box boots from it.
// Errors: a file that exists cannot be read now; without its list, the base would count as unused.
func (t *Table) complete(list []Record) error {
	below := map[string][]string{}
	for i := range list {
		r := &list[i]
		if len(r.Below) > 0 {
			continue
		}
		known, seen := below[r.Digest]
		if !seen {
			var err error
			known, err = stack.ReadFile(t.rootfs(r.Digest))
			var failed *fs.PathError // a short file or a wrong list is another error
			if errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EIO) {
				return fmt.Errorf("read which root filesystems lie below an image: %w", err)
			}
			below[r.Digest] = known
		}
		r.Below = known
	}
	return nil
}

// compare returns the records of descriptors that an index does not have, and the keys of its records
// without a descriptor and without files, also in an object store. It writes the missing descriptors of its other records, and
// removes descriptors of images that do not exist.
func (t *Table) compare(ctx context.Context, ix *Index) (added []Record, lost map[string]bool, err error) {
	keys, err := t.dir.keys()
	if errors.Is(err, fs.ErrNotExist) {
		if err = nil; len(ix.Images) == 0 {
			err = t.checkEmpty(t.dir.records())
		}
		if err == nil {
			err = durable.MkdirAll(t.dir.records())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	described := map[string]bool{}
	for _, key := range keys {
		described[key] = true
	}
	lost = map[string]bool{}
	known := map[string]bool{}
	for _, r := range ix.Images {
		key := r.Key()
		known[key] = true
		if described[key] {
			continue
		}
		there, err := t.has(ctx, &r)
		if err != nil {
			return nil, nil, err
		}
		if !there {
			lost[key] = true
			continue
		}
		if err := t.dir.write([]Record{r}); err != nil {
			return nil, nil, err
		}
	}
	var gone []string
	for _, key := range keys {
		if known[key] {
			continue
		}
		r, err := t.dir.read(key)
		if err != nil {
			return nil, nil, err
		}
		if !exists(t.layout.Blob(r.Manifest.Digest)) {
			gone = append(gone, key)
			continue
		}
		added = append(added, r)
	}
	return added, lost, t.dir.remove(gone)
}

// has reports whether the files of a record are there, or in an object store: then it writes the manifest and the configuration, which are
// read often. The other files are fetched when they are needed.
func (t *Table) has(ctx context.Context, r *Record) (bool, error) {
	manifest := t.layout.Blob(r.Manifest.Digest)
	if exists(t.rootfs(r.Digest)) && exists(manifest) {
		return true, nil
	}
	blobs, err := t.rows.StoredBlobs(ctx, r)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for digest, data := range blobs {
		if name := t.layout.Blob(digest); !exists(name) {
			if err := durable.WriteFile(name, data); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// reconcile makes records that were written by different processes fit each other: a reference means
// the newest image of it, and all records of a root filesystem describe the file that is there.
func (t *Table) reconcile(list []Record) {
	type name struct {
		owner sandbox.WorkspaceID
		ref   string
	}
	current := map[name]*Record{}
	files := map[string][]*Record{}
	for i := range list {
		r := &list[i]
		files[r.Digest] = append(files[r.Digest], r)
		if !r.Current {
			continue
		}
		n := name{r.Owner, r.Ref()}
		if before := current[n]; before != nil {
			if before.UpdatedAt.After(r.UpdatedAt) {
				before, r = r, before
			}
			before.Current = false
		}
		current[n] = r
	}
	for digest, records := range files {
		info, err := os.Stat(t.rootfs(digest))
		if err != nil || len(records) == 1 {
			continue
		}
		at := slices.IndexFunc(records, func(r *Record) bool { return info.ModTime().Equal(r.ModTime()) })
		for _, r := range records {
			if at >= 0 && !r.ModTime().Equal(info.ModTime()) {
				r.FileTime, r.Mark = records[at].ModTime(), records[at].Mark
			}
		}
	}
}
