package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/chain"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lease"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/verify"
)

// made is a root filesystem that is not part of the store yet.
type made struct {
	rootfs.Result
	packages []recipe.Package
	// mark is the UUID that the EROFS would have if it were no link to the file of another image.
	mark []byte
	// volatile root filesystems can be made again after a power failure.
	volatile bool
}

// keeper makes root filesystems that are complete part of the store.
type keeper struct {
	index    *index.Table
	names    *names
	files    *files
	layout   archive.Layout
	verifier *verify.Verifier
	removal  *Removal
	leases   *lease.Leases
}

// keep makes a finished root filesystem part of the store: see complete and [Staged.Publish].
// After a crash the store has all of it or nothing that the index names.
func (k *keeper) keep(ctx context.Context, root *made, rec *index.Record, write func(layer rootfs.Blob) (archive.Ref, error)) error {
	if err := k.complete(ctx, root, rec); err != nil {
		return err
	}
	return k.publish(ctx, &Staged{root: root, rec: rec, write: write}, nil)
}

// complete describes a finished root filesystem in rec, and puts its files on the disk.
func (k *keeper) complete(ctx context.Context, root *made, rec *index.Record) (err error) {
	if root.mark == nil {
		mark, err := rec.UUID()
		if err == nil {
			err = rootfs.Mark(root.EROFS, mark)
		}
		if err != nil {
			return fmt.Errorf("write root filesystem: %w", err)
		}
	}
	if rec.Digest, rec.SizeBytes, err = rootfs.Digest(ctx, root.EROFS, root.mark); err != nil {
		return err
	}
	rec.FileCount, rec.Mark = root.Files, root.mark
	if root.mark == nil {
		rec.FileTime = rec.UpdatedAt
		err = os.Chtimes(root.EROFS, rec.FileTime, rec.FileTime)
	} else {
		rec.FileTime, err = modTime(root.EROFS)
	}
	if err != nil {
		return err
	}
	return root.save(k.files, rec.Below)
}

// save puts the files, and those below, which may be volatile, on the disk, which takes long: the caller has no lock.
func (r *made) save(in *files, below []string) error {
	if r.mark == nil { // otherwise it is a link to a file that may belong to another store
		if err := os.Chmod(r.EROFS, 0o444); err != nil {
			return err
		}
	}
	if !r.volatile {
		paths := []string{r.EROFS}
		for _, digest := range below {
			paths = append(paths, in.erofsPath(digest))
		}
		if err := durable.Sync(paths...); err != nil {
			return err
		}
	}
	if r.Layer.Path == "" {
		return nil
	}
	if err := os.Chmod(r.Layer.Path, 0o444); err != nil {
		return err
	}
	return durable.Sync(r.Layer.Path)
}

// install moves the files of a staged image to their places and adds it to the index. It holds the
// lock of the index, so that no removal takes the files for garbage. It returns errChanged if the
// index is of another generation than seen, unless that is nil.
func (k *keeper) install(ctx context.Context, p *Staged, seen *index.Generation) error {
	ix, unlock, err := k.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	root, rec := p.root, p.rec
	if seen != nil {
		now, err := k.index.Generation()
		if err != nil {
			return err
		}
		if !seen.Same(now) {
			return errChanged
		}
	}
	if same := ix.ByDigest(rec.Digest); same != nil && verify.Untouched(k.files.erofsPath(rec.Digest), same) {
		rec.FileTime, rec.Mark = same.ModTime(), same.Mark
		if !root.volatile { // a file of the same digest may be volatile
			if err := durable.Sync(k.files.erofsPath(rec.Digest)); err != nil {
				return err
			}
		}
	} else if err := durable.Move(root.EROFS, k.files.erofsPath(rec.Digest)); err != nil {
		return err
	} else {
		ix.Replaced(rec)
	}
	if root.Layer.Path != "" {
		if err := durable.Move(root.Layer.Path, k.layout.Blob(root.Layer.Digest)); err != nil {
			return err
		}
		root.Layer.Path = k.layout.Blob(root.Layer.Digest)
	}
	if rec.Manifest, err = p.write(root.Layer); err != nil {
		return fmt.Errorf("write OCI image: %w", err)
	}
	rec.CreatedAt = rec.UpdatedAt
	if old := ix.Owned(rec.Owner, rec.Ref()); old != nil && rec.Name != "" {
		rec.CreatedAt = old.CreatedAt
	}
	ix.Add(*rec)
	if err := k.index.Write(ix); err != nil || !p.held {
		return err
	}
	p.release, err = k.leases.Hold(ctx, rec.Digest)
	return err
}

// keepPulled is keep for an image whose configuration and layers are files in a directory. A chain of all of its layers
// is also its root filesystem.
func (k *keeper) keepPulled(ctx context.Context, files *chain.Result, rec *index.Record, img oci.Image, dir string) error {
	root := &made{Result: files.Result}
	rec.Below = files.Below
	if files.Same != nil {
		mark, err := rec.UUID()
		if err != nil {
			return err
		}
		root.EROFS, root.mark = filepath.Join(dir, "root.erofs"), mark[:rootfs.MarkLength]
		if err := rootfs.LinkOrCopy(ctx, files.Same.Path, root.EROFS); err != nil {
			return fmt.Errorf("name root filesystem: %w", err)
		}
	}
	return k.keep(ctx, root, rec, func(rootfs.Blob) (archive.Ref, error) { return k.layout.AddFiles(img, dir) })
}
