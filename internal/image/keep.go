package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// made is a root filesystem that is not part of the store yet.
type made struct {
	rootfs.Result
	packages []recipe.Package
	room     Room // nil for as much as there is
	// mark, when the EROFS is a name of another image's, is the UUID it would have.
	mark []byte
	// volatile: it can be made again should the host lose it in a power failure.
	volatile bool
}

// keep makes a finished root filesystem part of the store: it moves the files to
// their places, has write add the OCI image, completes rec with what they are,
// and adds it to the index. After a crash the store has all of it
// or nothing that the index names.
func (s *Store) keep(ctx context.Context, root *made, rec *record, write func(layer rootfs.Blob) (archive.Ref, error)) (err error) {
	if root.mark == nil {
		if err := markConfig(root.EROFS, &rec.Config); err != nil {
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
	if err := root.save(); err != nil {
		return err
	}
	err = s.install(ctx, root, rec, write)
	if short := sandbox.DiskShort(err); short > 0 {
		made, rerr := s.MakeRoom(ctx, rec.payer(), short)
		if rerr != nil {
			return rerr
		}
		if made {
			err = s.install(ctx, root, rec, write)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.verified[rec.Digest] = true // hashed a moment ago
	s.mu.Unlock()
	s.trim(ctx)
	return nil
}

// save puts the files on disk, which takes long: it comes before the index is locked.
func (r *made) save() error {
	if err := os.Chmod(r.EROFS, 0o444); err != nil {
		return err
	}
	if !r.volatile {
		if err := durable.Sync(r.EROFS); err != nil {
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

// trim keeps the store within its bounds. What was just added is there in any case.
func (s *Store) trim(ctx context.Context) {
	if s.maxDisk == 0 {
		return
	}
	removed, freed, err := s.Trim(ctx, s.maxDisk, s.inUse)
	if len(removed) > 0 {
		s.log.Info("removed images to save disk", "images", removed, "bytes", freed)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("the disk used by images could not be bounded", "error", err)
	}
}

// install does the part of keep that needs the index. All of it is under the
// index's lock, so that Prune does not take the files for garbage before the
// index names them.
func (s *Store) install(ctx context.Context, root *made, rec *record, write func(layer rootfs.Blob) (archive.Ref, error)) error {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if root.room != nil {
		if err := root.room(ctx, ix.adds(root, rec)); err != nil {
			return err
		}
	}
	if same := ix.byDigest(rec.Digest); same != nil && untouched(s.erofsPath(rec.Digest), same) {
		rec.FileTime, rec.Mark = same.fileTime(), same.Mark
		if !root.volatile { // it may be there of one that was
			if err := durable.Sync(s.erofsPath(rec.Digest)); err != nil {
				return err
			}
		}
	} else if err := durable.Move(root.EROFS, s.erofsPath(rec.Digest)); err != nil {
		return err
	} else {
		ix.replaced(rec)
	}
	if root.Layer.Path != "" {
		if err := durable.Move(root.Layer.Path, s.layout.Blob(root.Layer.Digest)); err != nil {
			return err
		}
		root.Layer.Path = s.layout.Blob(root.Layer.Digest)
	}
	if rec.Manifest, err = write(root.Layer); err != nil {
		return fmt.Errorf("write OCI image: %w", err)
	}
	rec.CreatedAt = rec.UpdatedAt
	if old := ix.owned(rec.Owner, rec.ref()); old != nil && rec.Name != "" {
		rec.CreatedAt = old.CreatedAt
	}
	ix.add(*rec)
	return s.writeIndex(ix)
}

// replaced notes that the file of a digest is another one now.
func (ix *index) replaced(rec *record) {
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Digest == rec.Digest {
			r.FileTime, r.Mark = rec.FileTime, rec.Mark
		}
	}
}

// adds returns how many bytes a record will take beside what counts for its payer.
func (ix *index) adds(root *made, rec *record) int64 {
	n, payer := rec.SizeBytes, rec.payer()
	if slices.ContainsFunc(ix.Images, func(r record) bool { return r.countsFor(payer) && r.has(rec.Digest) }) {
		n = 0
	}
	return n + root.Layer.Size
}

// keepPulled is keep for an image whose configuration and layers are files in the directory of its
// root filesystem.
func (s *Store) keepPulled(ctx context.Context, root *made, rec *record, img oci.Image) error {
	return s.keep(ctx, root, rec, func(rootfs.Blob) (archive.Ref, error) {
		return s.layout.AddFiles(img, filepath.Dir(root.EROFS))
	})
}
