package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Pack writes the directory as a tar stream of files, directories and symlinks; it omits other
// entries (sockets, devices).
func Pack(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if err := PackEntry(tw, root, name, d); err != nil {
			return fmt.Errorf("pack %s: %w", filepath.Join(dir, name), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// PackEntry writes the entry name of root to tw. It omits all but files, directories and symlinks.
func PackEntry(tw *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	plain, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: plain.Mode, ModTime: info.ModTime()}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return tw.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
		return tw.WriteHeader(h)
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(tw, f, h.Size)
	return err
}

// Unpack writes a tar stream below dir. The stream comes from a sandbox and is hostile: whatever
// its names and links say, Unpack touches nothing outside dir, and only makes files, directories,
// symlinks and hard links, without owners and without setuid bits. Symlinks that lead out of dir
// could mislead users of the copy; Unpack omits them and calls omitted with their names.
func Unpack(r io.Reader, dir string, omitted func(name string)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if name == "." {
			continue
		}
		if h.Typeflag == tar.TypeSymlink && leadsOut(name, h.Linkname) {
			omitted(name)
			continue
		}
		if err := unpackEntry(root, tr, h, name); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

// leadsOut reports whether a symlink at name may lead out of the tree.
func leadsOut(name, target string) bool {
	to := path.Join(path.Dir(name), target)
	return path.IsAbs(target) || to == ".." || strings.HasPrefix(to, "../")
}

func unpackEntry(root *os.Root, tr *tar.Reader, h *tar.Header, name string) error {
	mode := fs.FileMode(h.Mode).Perm()
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		if err := replace(root, name); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		if err := replace(root, name); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if err := replace(root, name); err != nil {
			return err
		}
		return root.Link(path.Clean(h.Linkname), name)
	}
	return nil
}

// replace frees the name of a new entry: it removes the entry that exists, a directory only if
// empty.
func replace(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
