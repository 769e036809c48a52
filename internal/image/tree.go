package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/erofs/go-erofs"

	"github.com/modbox/modbox/internal/sandbox"
)

// treeWriter writes an EROFS from tar entries.
type treeWriter struct {
	file *os.File
	fs   *erofs.Writer
	// entries has what was written, by clean name. A hard link has the header of the
	// file it leads to, a directory that only its children name has implicit.
	entries map[string]*tar.Header
}

// implicit stands for a directory that no entry made so far.
var implicit = &tar.Header{Typeflag: tar.TypeDir}

func newTreeWriter(name, tempDir string, date time.Time) (*treeWriter, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write root filesystem: %w", err)
	}
	w := erofs.Create(f, erofs.WithTempDir(tempDir), erofs.WithBuildTime(uint64(date.Unix()), 0))
	return &treeWriter{file: f, fs: w, entries: map[string]*tar.Header{".": implicit}}, nil
}

func (t *treeWriter) close() error {
	if err := t.fs.Close(); err != nil {
		return fmt.Errorf("write root filesystem: %w", err)
	}
	if err := storePlain(t.file); err != nil {
		return fmt.Errorf("write root filesystem: %w", err)
	}
	return t.file.Close()
}

// add writes one normalised entry. Extended attributes are left out, see the
// package comment. An error about the entry itself has code Invalid.
func (t *treeWriter) add(hdr *tar.Header, content io.Reader) error {
	name := path.Clean(hdr.Name)
	if err := t.admit(name, hdr.Typeflag); err != nil {
		return err
	}
	meta := hdr
	if hdr.Typeflag == tar.TypeLink {
		if meta = t.entries[hdr.Linkname]; meta == nil || meta.Typeflag != tar.TypeReg {
			return sandbox.Errorf(sandbox.Invalid, "the hard link %.300q leads to %.300q, which is not a file", name, hdr.Linkname)
		}
	}
	err := t.create(name, hdr, content)
	if err == nil {
		err = errors.Join(
			t.fs.Chmod(name, meta.FileInfo().Mode()),
			t.fs.Chown(name, meta.Uid, meta.Gid),
			t.fs.Chtimes(name, meta.ModTime, meta.ModTime))
	}
	if err != nil {
		return fmt.Errorf("write %q to the root filesystem: %w", name, err)
	}
	t.entries[name] = meta
	return nil
}

// admit refuses an entry whose name is taken or whose parent is no directory.
// Parents that no entry made count as directories from then on.
func (t *treeWriter) admit(name string, kind byte) error {
	if old := t.entries[name]; old != nil && (kind != tar.TypeDir || old.Typeflag != tar.TypeDir) {
		return sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q twice", name)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if old := t.entries[dir]; old == nil {
			t.entries[dir] = implicit
		} else if old.Typeflag != tar.TypeDir {
			return sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q under something that is not a directory", name)
		}
	}
	return nil
}

// create writes the entry without its metadata.
func (t *treeWriter) create(name string, hdr *tar.Header, content io.Reader) error {
	switch hdr.Typeflag {
	case tar.TypeReg:
		return t.writeFile(name, content)
	case tar.TypeDir:
		if t.entries[name] != nil {
			return nil // made for its children already; it gets its metadata now
		}
		return t.fs.Mkdir(name, 0o755)
	case tar.TypeSymlink:
		if hdr.Linkname == "" || len(hdr.Linkname) > pathMax || strings.ContainsRune(hdr.Linkname, 0) {
			return sandbox.Errorf(sandbox.Invalid, "the symbolic link %.300q has an unacceptable target", name)
		}
		return t.fs.Symlink(hdr.Linkname, name)
	case tar.TypeLink:
		return t.copyFile(name, hdr.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return t.fs.Mknod(name, typeBits[hdr.Typeflag], deviceNumber(hdr))
	default:
		return sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q of the unknown type %q", name, hdr.Typeflag)
	}
}

// typeBits are the file type bits of a mode.
var typeBits = map[byte]uint16{tar.TypeChar: 0o020000, tar.TypeBlock: 0o060000, tar.TypeFifo: 0o010000}

// deviceNumber encodes a device number as Linux stores it on disk.
func deviceNumber(hdr *tar.Header) uint32 {
	if hdr.Typeflag == tar.TypeFifo {
		return 0
	}
	major, minor := uint32(hdr.Devmajor), uint32(hdr.Devminor)
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

func (t *treeWriter) writeFile(name string, content io.Reader) error {
	f, err := t.fs.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return f.Close()
}

// copyFile makes name a copy of an earlier regular file: EROFS could link them,
// its writer cannot.
func (t *treeWriter) copyFile(name, target string) error {
	src, err := t.fs.Open(target)
	if err != nil {
		return err
	}
	defer src.Close()
	return t.writeFile(name, src)
}
