package fake

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// layerSkips are not part of a layer.
var layerSkips = []string{"proc", "sys", "dev", "tmp"}

// WriteLayer writes everything in the box's root, which was empty at the beginning.
func (d *Driver) WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error {
	return d.writeTree(ctx, id, w, true)
}

// WriteNames is WriteLayer without the contents of files.
func (d *Driver) WriteNames(ctx context.Context, id sandbox.ID, w io.Writer) error {
	return d.writeTree(ctx, id, w, false)
}

func (d *Driver) writeTree(ctx context.Context, id sandbox.ID, w io.Writer, contents bool) error {
	ctx, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.WriteLayer })
	if err != nil {
		return err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return err
	}
	if err := b.mustRun(); err != nil {
		return err
	}
	if _, err := b.image(); err != nil {
		return err
	}
	if err := writeTree(w, b.dir, layerSkips, contents); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// writeTree writes the files below root to w as a tar, except the top-level directories of skip and
// sockets.
func writeTree(w io.Writer, root string, skip []string, contents bool) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name, rerr := filepath.Rel(root, path)
		switch {
		case err != nil || rerr != nil:
			return errors.Join(err, rerr)
		case name == "." || e.Type()&fs.ModeSocket != 0:
			return nil
		case slices.Contains(skip, name) && e.IsDir():
			return filepath.SkipDir
		}
		return writeEntry(out, path, name, e, contents)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func writeEntry(out *tar.Writer, path, name string, e fs.DirEntry, contents bool) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	target := ""
	if e.Type() == fs.ModeSymlink {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	if header.Name = name; e.IsDir() {
		header.Name += "/"
	}
	if !contents && e.Type().IsRegular() {
		header.Format, header.PAXRecords, header.Size = tar.FormatPAX, map[string]string{driver.LayerSize: strconv.FormatInt(header.Size, 10)}, 0
	}
	if err := out.WriteHeader(header); err != nil || !e.Type().IsRegular() || !contents {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(out, f, header.Size)
	return err
}

// readTree fills dir from a tar of writeTree.
func readTree(name, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in := tar.NewReader(f)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := readEntry(root, header, in); err != nil {
			return err
		}
	}
}

func readEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	mode := header.FileInfo().Mode().Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		return root.Mkdir(filepath.Clean(header.Name), mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, header.Name)
	case tar.TypeReg:
		f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(mode), f.Close())
	default:
		return nil // a pipe that nobody has open
	}
}
