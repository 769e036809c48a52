package fileserver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

// Archives are hostile: an archive may come from anybody, through a user who never looked into it.
// Therefore all files are created through an os.Root, which no path leaves, and entries that no
// archive of a tree contains are refused.

// Unpack serves PUT /files/archive: it unpacks an archive into a directory.
func (s *Server) Unpack(_ http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	format, err := archiveFormat(q)
	if err != nil {
		return err
	}
	owner, err := s.owner(q.Get("user"))
	if err != nil {
		return err
	}
	p, err := s.queryPlace(q)
	if err != nil {
		return err
	}
	defer p.close()
	if err := makeDirs(p.tree, p.name, defaultDirMode, owner); err != nil {
		return p.escapes(err)
	}
	root, err := p.openRoot()
	if err != nil {
		return p.escapes(err)
	}
	defer root.Close()
	u := &unpacker{ctx: r.Context(), root: root, owner: owner, dirs: map[string]bool{".": true}, keepLinks: q.Get("keep_links") == "true"}
	defer u.leave()
	if err := u.unpack(newArchiveSource(r.Context(), r.Body), format); err != nil {
		return p.escapes(err)
	}
	return nil
}

// openRoot opens the directory p as the root of its own tree.
func (p place) openRoot() (*os.Root, error) {
	if root, ok := p.tree.(*os.Root); ok {
		return root.OpenRoot(p.name)
	}
	return os.OpenRoot(p.name)
}

// unpacker extracts the entries of an archive below a directory.
type unpacker struct {
	ctx     context.Context // of the request
	root    *os.Root
	owner   rootdir.Account
	entries int
	// keepLinks permits symlinks that lead out of the directory; nothing is written through them.
	keepLinks bool
	// dirs are paths known to be directories, without symlinks all the way from the root.
	dirs map[string]bool
	// at is the directory of the last entry, and dir its root.
	at  string
	dir *os.Root
	// made are the directories that the archive has entries for. Their modes and times are set
	// last, when nothing is created in them any more.
	made []entry
}

// entry is the archive's description of a path. Its type is a directory, a regular file, a symlink,
// or fs.ModeIrregular for a hard link.
type entry struct {
	name    string
	mode    fs.FileMode
	modTime time.Time
	target  string // of a link
}

// unpack extracts the whole archive.
func (u *unpacker) unpack(src *archiveSource, format agentapi.Format) error {
	found, err := src.detect()
	switch {
	case err != nil:
		return err
	case format == "" && found == "":
		return answer.Invalid("the archive is neither tar.gz nor zip nor tar")
	case format == "":
		format = found
	}
	switch format {
	case agentapi.FormatZip:
		err = u.unzip(src)
	case agentapi.FormatTarGzip:
		err = u.untarGzip(src)
	default:
		err = u.untar(src, src.body)
	}
	if err != nil {
		return err
	}
	return u.finish()
}

// put creates an entry. content is nil except for files.
func (u *unpacker) put(e entry, content io.Reader) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.entries++; u.entries > agentapi.MaxArchiveEntries {
		return errTooManyEntries
	}
	name, err := localName(e.name)
	if err != nil {
		return err
	}
	if e.mode.IsDir() {
		e.name = name
		u.made = append(u.made, e)
		return u.enter(name)
	}
	if name == "." {
		return answer.Invalid("the archive contains %q, which must be a directory, as another type", e.name)
	}
	if e.mode.Type() == fs.ModeSymlink {
		if err := u.checkTarget(name, e.target); err != nil {
			return err
		}
	}
	if e.mode.Type() == fs.ModeIrregular {
		if e.target, err = u.linked(name, e.target); err != nil {
			return err
		}
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	e.name = name
	err = u.create(e, content)
	if errors.Is(err, fs.ErrExist) {
		if err = u.clear(name); err == nil {
			err = u.create(e, content)
		}
	}
	return err
}

// create creates an entry that is not a directory; if its name is taken, it returns fs.ErrExist and
// has read nothing of content.
func (u *unpacker) create(e entry, content io.Reader) error {
	base := path.Base(e.name)
	switch e.mode.Type() {
	case fs.ModeSymlink:
		if err := u.dir.Symlink(e.target, base); err != nil || u.owner.Current() {
			return err
		}
		return u.dir.Lchown(base, int(u.owner.UID), int(u.owner.GID))
	case fs.ModeIrregular:
		return u.root.Link(e.target, e.name)
	}
	f, err := u.dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fill(f, content, e.mode.Perm(), int(u.owner.UID), int(u.owner.GID), nil)
	if err == nil {
		err = setTime(u.dir, base, e.modTime)
	}
	if err != nil {
		u.dir.Remove(base)
	}
	return err
}

// clear removes the file that has the name of an entry.
func (u *unpacker) clear(name string) error {
	base := path.Base(name)
	info, err := u.dir.Lstat(base)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return answer.Errorf(agentapi.CodeIsDir, "%s is a directory, but not in the archive", name)
	}
	return u.dir.Remove(base)
}

// enter makes u.dir the directory of that name, and creates it if it is missing.
func (u *unpacker) enter(name string) error {
	if u.dir != nil && u.at == name {
		return nil
	}
	for end := 0; !u.dirs[name] && end < len(name); {
		if next := strings.IndexByte(name[end+1:], '/'); next < 0 {
			end = len(name)
		} else {
			end += 1 + next
		}
		if err := u.ensureDir(name[:end]); err != nil {
			return err
		}
	}
	dir, err := u.root.OpenRoot(name)
	if err != nil {
		return err
	}
	u.leave()
	u.at, u.dir = name, dir
	return nil
}

// leave closes the current directory.
func (u *unpacker) leave() {
	if u.dir != nil {
		u.dir.Close()
		u.dir = nil
	}
}

// ensureDir creates a directory whose parent exists, unless it exists.
func (u *unpacker) ensureDir(name string) error {
	if u.dirs[name] {
		return nil
	}
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = makeDir(u.root, name, defaultDirMode, u.owner); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return answer.Invalid("the archive has entries below the symlink %s", name)
	case !info.IsDir():
		return answer.Errorf(agentapi.CodeNotDir, "%s is not a directory, but the archive has a directory there", name)
	}
	u.dirs[name] = true
	return nil
}

// linked returns the file in the tree that the hard link at name points to.
func (u *unpacker) linked(name, target string) (string, error) {
	to, err := localName(target)
	if err != nil {
		return "", err
	}
	if err := u.enter(path.Dir(to)); err != nil {
		return "", err
	}
	info, err := u.dir.Lstat(path.Base(to))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() || to == name {
		return "", answer.Invalid("the archive has %s as a link to %s, which is not a file in it", name, target)
	}
	return to, err
}

// finish sets the modes and times of directories, inner directories first.
func (u *unpacker) finish() error {
	for _, e := range slices.Backward(u.made) {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		if e.name == "." {
			continue // it was not created by the archive
		}
		err := u.root.Chmod(e.name, e.mode.Perm())
		if err == nil {
			err = setTime(u.root, e.name, e.modTime)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// setTime sets the modification time of a path, if the archive has a time that every filesystem can
// store.
func setTime(root *os.Root, name string, t time.Time) error {
	if year := t.Year(); year < 1971 || year > 2100 {
		return nil
	}
	return root.Chtimes(name, t, t)
}

// localName returns the name of an entry below the directory, cleaned.
func localName(name string) (string, error) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", answer.Invalid("the archive has an entry without a valid name")
	case path.IsAbs(name):
		return "", answer.Invalid("the archive has the absolute path %q", name)
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "", answer.Invalid(`the archive has the path %q, which contains ".."`, name)
	}
	return path.Clean(name), nil
}

// checkTarget refuses a symlink that may lead out of the directory. It permits ".." only at the
// beginning of the target: after a name, the result depends on where that name leads.
func (u *unpacker) checkTarget(name, target string) error {
	if target == "" || strings.ContainsRune(target, 0) {
		return answer.Invalid("the archive has the symlink %s without a valid target", name)
	}
	if u.keepLinks {
		return nil
	}
	depth, down := strings.Count(name, "/"), false
	out := path.IsAbs(target)
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			depth--
			out = out || down || depth < 0
		default:
			down = true
		}
	}
	if out {
		return answer.Invalid("the archive has the symlink %s, which may lead out of the directory: %q", name, target)
	}
	return nil
}
