package ownserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/stack"
)

// linkImages makes an image store with some images of another store, whose files are replaced and
// never changed.
func linkImages(ctx context.Context, from, to string, refs []string) error {
	if err := linkFiles(from, to); err != nil {
		return err
	}
	locks, files := filepath.Join(to, "locks"), filepath.Join(to, "images")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return err
	}
	layout, err := archive.OpenLayout(filepath.Join(to, "layout"))
	if err != nil {
		return err
	}
	table, err := index.Open(ctx, index.Options{Dir: to, Lock: filepath.Join(locks, "index.lock"), Images: files, Layout: layout})
	if err != nil {
		return err
	}
	ix, unlock, err := table.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	listed := func(r *index.Record) bool { return r.Current && slices.Contains(refs, r.Ref()) }
	below := ix.Below(listed)
	var kept []string
	for _, ref := range refs {
		image := ix.Current(ref)
		if image == nil {
			return fmt.Errorf("the store has no image %s", ref)
		}
		kept = append(kept, stack.FileName(image.Digest))
	}
	for digest := range below {
		kept = append(kept, stack.FileName(digest))
	}
	if err := table.Write(ix.Keep(func(r *index.Record) bool { return listed(r) || below[r.Digest] })); err != nil {
		return err
	}
	// The server reads each root filesystem when it starts.
	others, err := os.ReadDir(files)
	if err != nil {
		return err
	}
	for _, e := range others {
		if slices.Contains(kept, e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(files, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// linkFiles links the files of an image store that belong to its images.
func linkFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case name == "tmp", name == "pulls", name == "locks", name == "used":
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case strings.HasSuffix(name, ".lock"):
			return nil
		// A hard link would change the inode of a root filesystem, and so end the record that it is undamaged.
		case filepath.Ext(name) == ".erofs":
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return err
			}
			return os.Symlink(path, target)
		}
		return os.Link(path, target)
	})
}
