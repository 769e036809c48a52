package fileserver

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	defaultFileMode = 0o644
	defaultDirMode  = 0o755
	// tempPrefix begins the names of files being written; leftovers of a crash may be removed.
	tempPrefix = ".modbox-"
)

// writeOptions parses the client's WriteOptions.
func writeOptions(q url.Values) (agentapi.WriteOptions, error) {
	opts := agentapi.WriteOptions{
		User: q.Get("user"), Beneath: q.Get("beneath"),
		Parents: q.Get("parents") == "true", Exclusive: q.Get("exclusive") == "true",
	}
	if s := q.Get("mode"); s != "" {
		mode, err := strconv.ParseUint(s, 8, 32)
		if err != nil || mode > maxMode {
			return opts, answer.Invalid("the mode %q is not a number of permission bits", s)
		}
		opts.Mode = uint32(mode)
	}
	if s := q.Get("metadata"); s != "" {
		if err := json.Unmarshal([]byte(s), &opts.Metadata); err != nil {
			return opts, answer.Invalid("the metadata is not valid: %v", err)
		}
	}
	return opts, nil
}

// Write serves PUT /files: it writes a file, which is whole or not there.
func (s *Server) Write(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	opts, err := writeOptions(q)
	if err != nil {
		return err
	}
	owner, err := s.owner(opts.User)
	if err != nil {
		return err
	}
	if opts.Parents && filepath.IsAbs(opts.Beneath) {
		if err := makeDirs(wholeTree{}, s.opts.Root.Path(opts.Beneath), defaultDirMode, owner); err != nil {
			return err
		}
	}
	p, err := s.place(q.Get("path"), opts.Beneath)
	if err != nil {
		return err
	}
	defer p.close()
	if opts.Beneath == "" {
		p = p.followed(s.opts.Root)
	}
	if opts.Parents {
		if err := makeDirs(p.tree, p.dir(), defaultDirMode, owner); err != nil {
			return p.escapes(err)
		}
	}
	info, err := p.replace(r.Body, opts, owner)
	if err != nil {
		return p.escapes(err)
	}
	return answer.JSON(w, info)
}

// owner returns the account that new files belong to.
func (s *Server) owner(user string) (rootdir.Account, error) {
	if user == "" {
		user = s.opts.Config().User
	}
	return s.opts.Root.Account(user)
}

// followed returns the target of a symlink when p is a symlink to a file, so that writing replaces
// the target.
func (p place) followed(root rootdir.Root) place {
	info, err := os.Lstat(p.name)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return p
	}
	target, err := filepath.EvalSymlinks(p.name)
	if err != nil {
		return p
	}
	path := target
	if root != "" {
		path = "/" + strings.TrimPrefix(strings.TrimPrefix(target, string(root)), "/")
	}
	return place{tree: p.tree, name: target, path: path}
}

// replace writes a file beside p and renames it to p when it is complete.
func (p place) replace(content io.Reader, opts agentapi.WriteOptions, owner rootdir.Account) (agentapi.FileInfo, error) {
	mode := fs.FileMode(defaultFileMode)
	uid, gid := int(owner.UID), int(owner.GID)
	switch old, err := p.tree.Lstat(p.name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return agentapi.FileInfo{}, err
	case opts.Exclusive:
		return agentapi.FileInfo{}, answer.Errorf(agentapi.CodeExists, "%s exists", p.path)
	case old.IsDir():
		return agentapi.FileInfo{}, answer.Errorf(agentapi.CodeIsDir, "%s is a directory", p.path)
	case old.Mode().IsRegular():
		was := p.describeAs(old)
		mode, uid, gid = fileMode(was.Mode), int(was.UID), int(was.GID)
	case old.Mode()&fs.ModeSymlink == 0:
		return agentapi.FileInfo{}, answer.Invalid("%s is not a regular file", p.path)
	}
	if opts.Mode != 0 {
		mode = fileMode(opts.Mode)
	}
	temp := p.sibling(tempPrefix + rand.Text())
	f, err := p.tree.OpenFile(temp.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return agentapi.FileInfo{}, err
	}
	info, err := fill(f, content, mode, uid, gid, opts.Metadata)
	if errors.Is(err, unix.ENOTSUP) {
		err = answer.Invalid("%s is on a filesystem without metadata of files", p.path)
	}
	if err == nil {
		err = rename(temp, p, !opts.Exclusive)
	}
	if err != nil {
		p.tree.Remove(temp.name)
		return agentapi.FileInfo{}, err
	}
	written := p.describeAs(info)
	written.Metadata = opts.Metadata
	return written, nil
}

// fill writes content into a new file and closes it.
func fill(f *os.File, content io.Reader, mode fs.FileMode, uid, gid int, metadata map[string]string) (os.FileInfo, error) {
	_, err := save(f, content)
	if err == nil {
		err = setMetadata(f, metadata)
	}
	if err == nil && (uid != os.Geteuid() || gid != os.Getegid()) {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(mode) // after chown, which clears setuid
	}
	var info os.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return info, err
}

// rename renames a file within a filesystem. Without overwrite it fails when the new name exists,
// even if it was created meanwhile. Only the parent directories are opened by path; symlinks at the
// last element are never followed.
func rename(from, to place, overwrite bool) error {
	const dirFlags = os.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	fromDir, err := from.tree.OpenFile(from.dir(), dirFlags, 0)
	if err != nil {
		return err
	}
	defer fromDir.Close()
	toDir, err := to.tree.OpenFile(to.dir(), dirFlags, 0)
	if err != nil {
		return err
	}
	defer toDir.Close()
	flags := uint(0)
	if !overwrite {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(int(fromDir.Fd()), filepath.Base(from.name), int(toDir.Fd()), filepath.Base(to.name), flags)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from.path, New: to.path, Err: err}
	}
	return nil
}

// makeDirs makes a directory and its missing parents, which belong to owner.
func makeDirs(t tree, name string, mode fs.FileMode, owner rootdir.Account) error {
	info, err := t.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		d, err := t.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err == nil {
			d.Close()
		}
		return err
	case err == nil:
		return answer.Errorf(agentapi.CodeNotDir, "%s is not a directory", name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if parent := filepath.Dir(name); parent != name {
		if err := makeDirs(t, parent, defaultDirMode, owner); err != nil {
			return err
		}
	}
	if err := makeDir(t, name, mode, owner); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another process made it
}

// makeDir makes a directory.
func makeDir(t tree, name string, mode fs.FileMode, owner rootdir.Account) error {
	if err := t.Mkdir(name, mode.Perm()); err != nil {
		return err
	}
	if int(owner.UID) != os.Geteuid() || int(owner.GID) != os.Getegid() {
		if err := t.Lchown(name, int(owner.UID), int(owner.GID)); err != nil {
			return err
		}
	}
	return t.Chmod(name, mode) // regardless of the umask
}

// MakeDir serves POST /files/mkdir.
func (s *Server) MakeDir(_ http.ResponseWriter, r *http.Request) error {
	var req agentapi.MkdirRequest
	if err := answer.Decode(r, &req); err != nil {
		return err
	}
	if req.Mode > maxMode {
		return answer.Invalid("the mode %o has more than permission bits", req.Mode)
	}
	mode := fileMode(req.Mode)
	if req.Mode == 0 {
		mode = defaultDirMode
	}
	owner, err := s.owner(req.User)
	if err != nil {
		return err
	}
	p, err := s.place(req.Path, req.Beneath)
	if err != nil {
		return err
	}
	defer p.close()
	if req.Parents {
		return p.escapes(makeDirs(p.tree, p.name, mode, owner))
	}
	return p.escapes(makeDir(p.tree, p.name, mode, owner))
}

// Move serves POST /files/move: it renames a file or directory.
func (s *Server) Move(_ http.ResponseWriter, r *http.Request) error {
	var req agentapi.MoveRequest
	if err := answer.Decode(r, &req); err != nil {
		return err
	}
	from, err := s.place(req.From, req.Beneath)
	if err != nil {
		return err
	}
	defer from.close()
	to, err := s.place(req.To, req.Beneath)
	if err != nil {
		return err
	}
	defer to.close()
	err = rename(from, to, req.Overwrite)
	if errors.Is(err, unix.EXDEV) {
		err = moveAcross(from, to, req.Overwrite)
	}
	return from.escapes(err)
}

// moveAcross moves a regular file to another filesystem, with its mode and owner.
func moveAcross(from, to place, overwrite bool) error {
	f, err := openRegular(from)
	if errors.Is(err, rootdir.ErrNotRegular) || toErrorCode(err) == agentapi.CodeIsDir {
		return answer.Invalid("%s and %s are on different filesystems, where only regular files can be moved", from.path, to.path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	was := from.describeAs(info)
	opts := agentapi.WriteOptions{Mode: was.Mode, Exclusive: !overwrite, Metadata: metadataOf(f)}
	if _, err := to.replace(f, opts, rootdir.Account{UID: was.UID, GID: was.GID}); err != nil {
		return err
	}
	return from.tree.Remove(from.name)
}

// toErrorCode returns the code that an error has for the host; "" for nil.
func toErrorCode(err error) agentapi.ErrorCode {
	if err == nil {
		return ""
	}
	return answer.Error(err).Code
}
