package fileserver

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

// tree is the part of the filesystem that a call may access. *os.Root implements it: no path leads
// out of it, not even through a symlink made meanwhile.
type tree interface {
	// OpenFile opens a file as [os.Root.OpenFile] does.
	OpenFile(name string, flag int, perm os.FileMode) (*os.File, error)
	// Lstat describes a file and follows no symbolic link at its end.
	Lstat(name string) (os.FileInfo, error)
	// Mkdir makes a directory.
	Mkdir(name string, perm os.FileMode) error
	// Chmod sets the mode of a file.
	Chmod(name string, mode os.FileMode) error
	// Lchown sets the owner of a file and follows no symbolic link at its end.
	Lchown(name string, uid, gid int) error
	// Readlink returns the target of a symbolic link.
	Readlink(name string) (string, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a file, or a directory with its content.
	RemoveAll(name string) error
	// Close releases the descriptor of the tree.
	Close() error
}

var (
	_ tree = (*os.Root)(nil)
	_ tree = wholeTree{}
)

// wholeTree is the whole filesystem; names are host paths.
type wholeTree struct{}

func (wholeTree) OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}
func (wholeTree) Lstat(name string) (os.FileInfo, error)    { return os.Lstat(name) }
func (wholeTree) Mkdir(name string, perm os.FileMode) error { return os.Mkdir(name, perm) }
func (wholeTree) Chmod(name string, mode os.FileMode) error { return os.Chmod(name, mode) }
func (wholeTree) Lchown(name string, uid, gid int) error    { return os.Lchown(name, uid, gid) }
func (wholeTree) Readlink(name string) (string, error)      { return os.Readlink(name) }
func (wholeTree) Remove(name string) error                  { return os.Remove(name) }
func (wholeTree) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (wholeTree) Close() error                              { return nil }

// place is a path in a call, with the tree that the call may access.
type place struct {
	tree tree
	name string // in the tree
	path string // absolute, as shown to the host
}

func (p place) close() { p.tree.Close() }

// dir returns the place's parent directory in the same tree.
func (p place) dir() string { return filepath.Dir(p.name) }

// sibling returns a place beside p.
func (p place) sibling(base string) place {
	return place{tree: p.tree, name: filepath.Join(p.dir(), base), path: filepath.Join(filepath.Dir(p.path), base)}
}

// place resolves a path: below the directory beneath, or, when beneath is empty, anywhere; a
// relative path is then relative to startDir. The caller closes the place.
func (s *Server) place(path, beneath string) (place, error) {
	if strings.ContainsRune(path, 0) || strings.ContainsRune(beneath, 0) {
		return place{}, answer.Invalid("the path has a zero byte")
	}
	if beneath == "" {
		path, err := s.absolute(path)
		if err != nil {
			return place{}, err
		}
		return place{tree: wholeTree{}, name: s.opts.Root.Path(path), path: filepath.Clean(path)}, nil
	}
	switch {
	case !filepath.IsAbs(beneath):
		return place{}, answer.Invalid("the directory %q is not absolute", beneath)
	case !filepath.IsLocal(path):
		return place{}, answer.Invalid("the path %q leaves its directory", path)
	}
	root, err := os.OpenRoot(s.opts.Root.Path(beneath))
	if err != nil {
		return place{}, err
	}
	return place{tree: root, name: filepath.Clean(path), path: filepath.Join(beneath, path)}, nil
}

// absolute returns path as an absolute path.
func (s *Server) absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	if path == "" {
		return "", answer.Invalid("the path is empty")
	}
	def := s.opts.Config()
	acc, err := s.opts.Root.Account(def.User)
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.opts.Root.StartDir(acc, def.WorkingDir), path)
	if !filepath.IsAbs(path) {
		return "", answer.Invalid("the image's working directory %q is not absolute", def.WorkingDir)
	}
	return path, nil
}

// queryPlace returns the place that a call's parameters name.
func (s *Server) queryPlace(q url.Values) (place, error) {
	return s.place(q.Get("path"), q.Get("beneath"))
}

// escapes converts the error of os.Root for paths outside of it, which has no exported value, to
// ours.
func (p place) escapes(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) && pathErr.Err.Error() == "path escapes from parent" {
		return answer.Invalid("the path %q leads out of its directory by a symlink", p.path)
	}
	return err
}

func openRegular(p place) (*os.File, error) {
	return rootdir.OpenRegularWith(p.path, func(flags int) (*os.File, error) { return p.tree.OpenFile(p.name, flags, 0) })
}

// describe returns the properties of a path, with its metadata or without.
func (p place) describe(metadata bool) (agentapi.FileInfo, error) {
	info, err := p.tree.Lstat(p.name)
	if err != nil {
		return agentapi.FileInfo{}, err
	}
	described := p.describeAs(info)
	if _, whole := p.tree.(wholeTree); whole && metadata && (info.Mode().IsRegular() || info.IsDir()) {
		described.Metadata = metadataAt(p.name)
	}
	return described, nil
}

func (p place) describeAs(info os.FileInfo) agentapi.FileInfo {
	f := agentapi.FileInfo{
		Name: filepath.Base(p.path), Path: p.path, Type: agentapi.TypeOther,
		Size: info.Size(), ModTime: info.ModTime(), Mode: modeBits(info.Mode()),
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID = st.Uid, st.Gid
	}
	switch {
	case info.Mode().IsRegular():
		f.Type = agentapi.TypeFile
	case info.IsDir():
		f.Type = agentapi.TypeDir
	case info.Mode()&fs.ModeSymlink != 0:
		f.Type = agentapi.TypeSymlink
		f.Target, _ = p.tree.Readlink(p.name) // it may have changed meanwhile
	}
	return f
}

// modeBits returns a mode in the form used by chmod.
func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range modeFlags {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

// fileMode is the inverse of modeBits.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits) & fs.ModePerm
	for flag, bit := range modeFlags {
		if bits&bit != 0 {
			m |= flag
		}
	}
	return m
}

var modeFlags = map[fs.FileMode]uint32{
	fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID, fs.ModeSticky: unix.S_ISVTX,
}

// maxMode has all bits that chmod accepts.
const maxMode = 0o7777
