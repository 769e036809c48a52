package fileserver

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

// Pack serves GET /files/archive: a file or a tree as an archive.
func (s *Server) Pack(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	format, err := archiveFormat(q)
	if err != nil {
		return err
	}
	p, err := s.queryPlace(q)
	if err != nil {
		return err
	}
	defer p.close()
	f, err := p.tree.OpenFile(p.name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) {
		return answer.Invalid("%s is neither a file nor a directory", p.path)
	}
	if err != nil {
		return p.escapes(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var pack func(packer) error
	switch {
	case info.Mode().IsRegular():
		pack = func(to packer) error { return to.file(filepath.Base(p.path), info, f) }
	case info.IsDir():
		root, err := p.openRoot()
		if err != nil {
			return p.escapes(err)
		}
		defer root.Close()
		walk := &treeWalk{ctx: r.Context(), root: root, device: device(info)}
		pack = walk.into
	default:
		return answer.Invalid("%s is neither a file nor a directory", p.path)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	buffered := bufio.NewWriterSize(w, copyBytes)
	to := newPacker(buffered, format)
	err = errors.Join(pack(to), to.close(), buffered.Flush())
	if err != nil {
		s.opts.Log.Warn("archive broken off", "path", p.path, "error", err)
		return answer.ErrAborted
	}
	return nil
}

// packer writes an archive. Names are relative, with slashes; names of directories do not end with
// a slash.
type packer interface {
	// dir adds a directory.
	dir(name string, info fs.FileInfo) error
	// symlink adds a symbolic link to target.
	symlink(name, target string, info fs.FileInfo) error
	// file adds a regular file of info.Size() bytes of content.
	file(name string, info fs.FileInfo, content io.Reader) error
	// close writes the end of the archive; it does not close the underlying writer.
	close() error
}

func newPacker(w io.Writer, format agentapi.Format) packer {
	switch format {
	case agentapi.FormatZip:
		z := zip.NewWriter(w)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
			return flate.NewWriter(w, flate.BestSpeed)
		})
		return zipPacker{z}
	case agentapi.FormatTar:
		return tarPacker{Writer: tar.NewWriter(w)}
	default:
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		return tarPacker{Writer: tar.NewWriter(z), gzip: z}
	}
}

type tarPacker struct {
	*tar.Writer
	gzip *gzip.Writer // nil when the tar is not compressed
}

// header returns the header of an entry. It omits owners, which are meaningful only on the original
// system.
func (t tarPacker) header(kind byte, name string, info fs.FileInfo) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
}

func (t tarPacker) dir(name string, info fs.FileInfo) error {
	return t.WriteHeader(t.header(tar.TypeDir, name+"/", info))
}

func (t tarPacker) symlink(name, target string, info fs.FileInfo) error {
	h := t.header(tar.TypeSymlink, name, info)
	h.Linkname = target
	return t.WriteHeader(h)
}

// file writes as many bytes as the file had when it was opened, because the tar has announced that
// size. If the file has shrunk meanwhile, zeros follow.
func (t tarPacker) file(name string, info fs.FileInfo, content io.Reader) error {
	h := t.header(tar.TypeReg, name, info)
	h.Size = info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	n, err := copyAll(t, io.LimitReader(content, h.Size))
	if err != nil {
		return err
	}
	_, err = copyAll(t, io.LimitReader(zeros{}, h.Size-n))
	return err
}

func (t tarPacker) close() error {
	err := t.Close()
	if t.gzip != nil {
		err = errors.Join(err, t.gzip.Close())
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type zipPacker struct{ *zip.Writer }

func (z zipPacker) entry(name string, info fs.FileInfo, method uint16) (io.Writer, error) {
	h := &zip.FileHeader{Name: name, Method: method, Modified: info.ModTime()}
	h.SetMode(info.Mode().Type() | info.Mode().Perm())
	return z.CreateHeader(h)
}

func (z zipPacker) dir(name string, info fs.FileInfo) error {
	_, err := z.entry(name+"/", info, zip.Store)
	return err
}

func (z zipPacker) symlink(name, target string, info fs.FileInfo) error {
	w, err := z.entry(name, info, zip.Store)
	if err == nil {
		_, err = io.WriteString(w, target)
	}
	return err
}

func (z zipPacker) file(name string, info fs.FileInfo, content io.Reader) error {
	w, err := z.entry(name, info, zip.Deflate)
	if err == nil {
		_, err = copyAll(w, io.LimitReader(content, info.Size()))
	}
	return err
}

func (z zipPacker) close() error { return z.Close() }

// treeWalk packs the content of a directory; directories come before their content, otherwise the
// order is undefined. Files that disappear meanwhile are skipped.
type treeWalk struct {
	ctx    context.Context
	root   *os.Root
	device uint64
}

func (t *treeWalk) into(to packer) error {
	for todo := []string{"."}; len(todo) > 0; {
		name := todo[len(todo)-1]
		dirs, err := t.packDir(to, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		todo = append(todo[:len(todo)-1], dirs...)
	}
	return nil
}

// packDir packs the entries of one directory and returns the directories among them.
func (t *treeWalk) packDir(to packer, name string) (dirs []string, err error) {
	dir, err := t.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	for {
		bases, err := list.Readdirnames(1024)
		if err == io.EOF {
			return dirs, nil
		}
		if err != nil {
			return nil, err
		}
		for _, base := range bases {
			if err := t.ctx.Err(); err != nil {
				return nil, err
			}
			isDir, err := t.packEntry(to, dir, path.Join(name, base))
			if err != nil {
				return nil, err
			}
			if isDir {
				dirs = append(dirs, path.Join(name, base))
			}
		}
	}
}

// packEntry packs an entry of a directory, and reports whether it is a directory.
func (t *treeWalk) packEntry(to packer, dir *os.Root, name string) (isDir bool, err error) {
	base := path.Base(name)
	info, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir() && device(info) != t.device:
		return false, nil // files in /proc and similar filesystems have no end
	case info.IsDir():
		return true, to.dir(name, info)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := dir.Readlink(base)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return false, to.symlink(name, target, info)
	case !info.Mode().IsRegular():
		return false, nil
	}
	f, err := openRegular(place{tree: dir, name: base, path: name})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, rootdir.ErrNotRegular) || toErrorCode(err) == agentapi.CodeIsDir {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return false, err
	}
	return false, to.file(name, info, f)
}

// device returns the number of the filesystem that a path is on.
func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // its type depends on the architecture
	}
	return 0
}
