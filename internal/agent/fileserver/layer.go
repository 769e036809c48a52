package fileserver

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
)

// Names with a meaning in a layer, and the prefix of extended attributes in its headers.
const (
	whiteout    = ".wh."
	opaque      = ".wh..wh..opq"
	xattrPrefix = "SCHILY.xattr."
)

// RestoreLayer applies a layer of the sandbox's own files to its root. The layer was made of this sandbox:
// what it could do to the root, a process in the sandbox can do.
func (s *Server) RestoreLayer(_ http.ResponseWriter, r *http.Request) error {
	l := &layer{root: s.opts.Root, buf: make([]byte, copyBytes)}
	in := tar.NewReader(r.Body)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return l.leave("")
		}
		if err == nil {
			err = l.apply(h, in)
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			return answer.Invalid("the layer is damaged: %v", err)
		}
		if err != nil {
			return err
		}
	}
}

// layer is a layer that is being applied.
type layer struct {
	root rootdir.Root
	buf  []byte
	// inside are the directories around the last entry, the innermost last. A layer may have millions, and has
	// what is in a directory right behind it.
	inside []dirTime
	dir    *tar.Header // of the innermost, unless there were others in it
}

// dirTime is the time of a directory, which is set when nothing is created in it any more.
type dirTime struct {
	path string
	time time.Time
}

// apply applies an entry.
func (l *layer) apply(h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) {
		return answer.Invalid("the layer has the path %q", h.Name)
	}
	if name == "." {
		return nil
	}
	at := l.root.Path("/" + name)
	if err := l.leave(at); err != nil {
		return err
	}
	dir, base := filepath.Split(at)
	if base == opaque {
		return l.empty(filepath.Clean(dir))
	}
	if removed, ok := strings.CutPrefix(base, whiteout); ok {
		return os.RemoveAll(filepath.Join(dir, removed))
	}
	if h.Typeflag == tar.TypeDir {
		l.inside, l.dir = append(l.inside, dirTime{at, h.ModTime}), h
		return l.makeDir(at, h)
	}
	err := l.create(at, h, content)
	if errors.Is(err, fs.ErrExist) {
		if err = os.RemoveAll(at); err == nil {
			err = l.create(at, h, content)
		}
	}
	if h.Typeflag == tar.TypeLink {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // to a file that layers do not have
		}
		return err // the file has its properties
	}
	if err != nil {
		return err
	}
	if err := describe(at, h); err != nil {
		return err
	}
	return setModTime(at, h.ModTime)
}

// empty removes what is in the directory of the last entry, as a directory that hides all below it.
func (l *layer) empty(at string) error {
	if l.dir == nil || l.inside[len(l.inside)-1].path != at {
		return answer.Invalid("the layer hides the directory %q without having it", at)
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return l.makeDir(at, l.dir)
}

// makeDir makes a directory, or changes a directory that exists.
func (l *layer) makeDir(at string, h *tar.Header) error {
	err := os.Mkdir(at, 0o700)
	if errors.Is(err, fs.ErrExist) {
		var info fs.FileInfo
		if info, err = os.Lstat(at); err == nil && !info.IsDir() {
			if err = os.Remove(at); err == nil {
				err = os.Mkdir(at, 0o700)
			}
		}
	}
	if err != nil {
		return err
	}
	return describe(at, h)
}

// create creates an entry that is not a directory; if its name is taken, it returns fs.ErrExist and has read
// nothing of content.
func (l *layer) create(at string, h *tar.Header, content io.Reader) error {
	device := int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
	var err error
	switch h.Typeflag {
	case tar.TypeReg:
		f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(l.fill(f, content, h.Size), f.Close())
	case tar.TypeLink:
		return os.Link(l.root.Path("/"+path.Clean(h.Linkname)), at)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, at)
	case tar.TypeFifo:
		err = unix.Mknod(at, unix.S_IFIFO|0o600, 0)
	case tar.TypeChar:
		err = unix.Mknod(at, unix.S_IFCHR|0o600, device)
	case tar.TypeBlock:
		err = unix.Mknod(at, unix.S_IFBLK|0o600, device)
	default:
		return answer.Invalid("the layer has %q as an entry of the unknown type %q", h.Name, h.Typeflag)
	}
	if err != nil {
		return &fs.PathError{Op: "mknod", Path: at, Err: err}
	}
	return nil
}

// fill writes the content of a new file, and leaves holes for pages of zeros: a file with holes may be larger
// than the disk.
func (l *layer) fill(f *os.File, content io.Reader, size int64) error {
	for at := int64(0); at < size; {
		n, err := io.ReadFull(content, l.buf[:min(int64(len(l.buf)), size-at)])
		if err != nil {
			return err
		}
		if err := writePages(f, l.buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return f.Truncate(size)
}

const pageBytes = 4096

var zeroPage [pageBytes]byte

// writePages writes data at an offset, without its pages of zeros.
func writePages(f *os.File, data []byte, at int64) error {
	begin := 0 // of the data that is not written yet
	for i := 0; i <= len(data); i += pageBytes {
		page := data[i:min(i+pageBytes, len(data))]
		if len(page) > 0 && !bytes.Equal(page, zeroPage[:len(page)]) {
			continue
		}
		if begin < i {
			if _, err := f.WriteAt(data[begin:i], at+int64(begin)); err != nil {
				return err
			}
		}
		begin = i + pageBytes
	}
	if begin < len(data) {
		_, err := f.WriteAt(data[begin:], at+int64(begin))
		return err
	}
	return nil
}

// describe sets the owner, the mode and the extended attributes of an entry.
func describe(at string, h *tar.Header) error {
	if err := os.Lchown(at, h.Uid, h.Gid); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink { // after the owner, whose change clears setuid
		if err := unix.Chmod(at, uint32(h.Mode)&maxMode); err != nil {
			return &fs.PathError{Op: "chmod", Path: at, Err: err}
		}
	}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, xattrPrefix); ok {
			if err := unix.Lsetxattr(at, name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
				return &fs.PathError{Op: "setxattr " + name, Path: at, Err: err}
			}
		}
	}
	return nil
}

func setModTime(at string, modified time.Time) error {
	t, err := unix.TimeToTimespec(modified)
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, at, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return &fs.PathError{Op: "utimes", Path: at, Err: err}
	}
	return nil
}

// leave sets the times of the directories that do not contain the path; "" is in none.
func (l *layer) leave(at string) error {
	for len(l.inside) > 0 {
		d := l.inside[len(l.inside)-1]
		if strings.HasPrefix(at, d.path+"/") {
			return nil
		}
		if err := setModTime(d.path, d.time); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.inside, l.dir = l.inside[:len(l.inside)-1], nil
	}
	return nil
}
