package rootfs

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/modbox/modbox/internal/sandbox"
)

// Reader reads a root filesystem in its file, a directory at a time: it mounts and unpacks nothing,
// and never has the whole in memory.
type Reader struct{ *Stack }

// Open opens a root filesystem as [OpenStack] does.
func Open(erofs string) (*Reader, error) {
	s, err := OpenStack(erofs)
	if err != nil {
		return nil, err
	}
	return &Reader{s}, nil
}

// at returns the inode of an absolute path, without following symbolic links, and the normalised
// path. Errors: Invalid, naming path; FileNotFound.
func (r *Reader) at(name string) (string, inode, error) {
	if len(name) > sandbox.SnapshotPathMax || strings.ContainsRune(name, 0) {
		return "", inode{}, sandbox.InvalidField("path", "must be at most %d bytes, none of them zero", sandbox.SnapshotPathMax)
	}
	clean := path.Clean("/" + name)
	at, err := r.rootDir()
	if err != nil {
		return "", at, err
	}
	for _, part := range split(cmp.Or(clean[1:], ".")) {
		if !at.mode.IsDir() {
			return "", at, sandbox.Errorf(sandbox.FileNotFound, "there is no %.300q: what would be its directory is none, or a symbolic link", clean)
		}
		next, ok, err := r.child(at, part)
		if err != nil {
			return "", at, err
		}
		if !ok {
			return "", at, sandbox.Errorf(sandbox.FileNotFound, "there is no %.300q", clean)
		}
		at = next
	}
	return clean, at, nil
}

// walk calls visit for the entries of the directory dir with the path name, sorted by name, and for
// all below if it is recursive. It skips the entries up to and including the path with the elements
// after below dir.
func (r *Reader) walk(ctx context.Context, dir string, in inode, recursive bool, after []string, visit func(string, inode) error) error {
	return r.entries(in, func(e entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var rest []string
		seen := false
		if len(after) > 0 {
			if e.name < after[0] {
				return nil
			}
			if seen = e.name == after[0]; seen {
				rest = after[1:]
			}
		}
		child, ok, err := e.inode()
		if err != nil || !ok {
			return err
		}
		name := path.Join(dir, e.name)
		if !seen {
			if err := visit(name, child); err != nil {
				return err
			}
		}
		if !recursive || !child.mode.IsDir() {
			return nil
		}
		return r.walk(ctx, name, child, recursive, rest, visit)
	})
}

// target returns the target of a symbolic link.
func (r *Reader) target(in inode) (string, error) {
	target, err := io.ReadAll(in.content())
	return string(target), err
}

// describe describes a file, without its hash.
func (r *Reader) describe(name string, in inode) (sandbox.SnapshotFile, error) {
	f := sandbox.SnapshotFile{Path: name, Mode: in.mode, UID: in.uid, GID: in.gid, ModTime: in.mtime}
	var err error
	switch {
	case in.mode.IsRegular():
		f.Size = in.size
	case in.mode&fs.ModeSymlink != 0:
		f.Target, err = r.target(in)
	}
	return f, err
}

// Stat describes the file with an absolute path, without following symbolic links. Errors: Invalid,
// naming path; FileNotFound.
func (r *Reader) Stat(name string) (sandbox.SnapshotFile, error) {
	clean, in, err := r.at(name)
	if err != nil {
		return sandbox.SnapshotFile{}, err
	}
	return r.describe(clean, in)
}

// Content is Stat with the content of a regular file; nil for other files.
func (r *Reader) Content(name string) (sandbox.SnapshotFile, io.Reader, error) {
	clean, in, err := r.at(name)
	if err != nil {
		return sandbox.SnapshotFile{}, nil, err
	}
	f, err := r.describe(clean, in)
	if err != nil || !in.mode.IsRegular() {
		return f, nil, err
	}
	return f, in.content(), nil
}

// Files returns a part of the names in the root filesystem. Errors: Invalid, naming path or
// after; FileNotFound.
func (r *Reader) Files(ctx context.Context, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	dir, in, err := r.at(q.Path)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	if !in.mode.IsDir() {
		l := lister{r: r, ctx: ctx, q: q, limit: 1}
		err := l.add(dir, in)
		return l.page, err
	}
	after, err := below(dir, q.After)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	l := lister{r: r, ctx: ctx, q: q, limit: cmp.Or(q.Limit, 1000)}
	if err := r.walk(ctx, dir, in, q.Recursive, after, l.add); err != nil && !errors.Is(err, errFull) {
		return sandbox.SnapshotFilePage{}, err
	}
	return l.page, nil
}

// below returns the elements of a path below a directory, none for "". Errors: Invalid, naming
// after.
func below(dir, name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(path.Clean(name), strings.TrimSuffix(dir, "/")+"/")
	if !ok || rest == "" {
		return nil, sandbox.InvalidField("after", "must be a path below the requested directory")
	}
	return strings.Split(rest, "/"), nil
}

// errFull ends a walk whose answer is complete.
var errFull = errors.New("the answer is full")

// lister collects the answer of Files.
type lister struct {
	r      *Reader
	ctx    context.Context // ends hashing
	q      sandbox.SnapshotFileQuery
	limit  int
	hashed int64 // bytes
	page   sandbox.SnapshotFilePage
}

func (l *lister) add(name string, in inode) error {
	hash := l.q.Hash && in.mode.IsRegular() && in.size <= sandbox.SnapshotHashMax
	if len(l.page.Files) == l.limit || hash && l.hashed+in.size > sandbox.SnapshotHashMax {
		l.page.More = true
		return errFull
	}
	f, err := l.r.describe(name, in)
	if err != nil {
		return err
	}
	if hash {
		l.hashed += in.size
		h := sha256.New()
		if _, err := io.Copy(h, UntilDone(l.ctx, in.content())); err != nil {
			return err
		}
		f.SHA256 = hex.EncodeToString(h.Sum(nil))
	}
	l.page.Files = append(l.page.Files, f)
	return nil
}

// Archive packs a directory or file of the root filesystem, as tar or, with compress, tar.gz, while
// it is read. Names are relative to the directory; a file is the only entry. The archive contains
// owners, modes, symbolic and hard links, but no devices, pipes and sockets. The caller closes the
// archive, which ends the work, as ctx does, and closes the reader. After an error the reader is
// still open. Errors: Invalid, naming path; FileNotFound.
func (r *Reader) Archive(ctx context.Context, name string, compress bool) (io.ReadCloser, error) {
	clean, in, err := r.at(name)
	if err != nil {
		return nil, err
	}
	out, w := io.Pipe()
	go func() {
		defer r.Close()
		_ = w.CloseWithError(r.pack(ctx, clean, in, compress, w)) // it does not fail
	}()
	return out, nil
}

// pack writes the archive.
func (r *Reader) pack(ctx context.Context, name string, in inode, compress bool, w io.Writer) error {
	if compress {
		zw, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		if err := r.pack(ctx, name, in, false, zw); err != nil {
			return err
		}
		return zw.Close()
	}
	p := packer{r: r, ctx: ctx, tw: tar.NewWriter(w), base: name, first: map[place]string{}}
	if !in.mode.IsDir() {
		p.base = path.Dir(name)
		if err := p.add(name, in); err != nil {
			return err
		}
	} else if err := r.walk(ctx, name, in, true, nil, p.add); err != nil {
		return err
	}
	return p.tw.Close()
}

// linksMax bounds the files whose hard links an archive preserves; further names are written as
// copies.
const linksMax = 100_000

// packer writes the entries of an archive.
type packer struct {
	r     *Reader
	ctx   context.Context // ends reading contents
	tw    *tar.Writer
	base  string           // the directory that names are relative to
	first map[place]string // the first names of files with several names
}

func (p *packer) add(name string, in inode) error {
	h := &tar.Header{
		Name: strings.TrimPrefix(strings.TrimPrefix(name, p.base), "/"), Mode: int64(sandbox.ModeBits(in.mode)),
		Uid: int(in.uid), Gid: int(in.gid), ModTime: in.mtime, Format: tar.FormatPAX,
	}
	switch {
	case in.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return p.tw.WriteHeader(h)
	case in.mode&fs.ModeSymlink != 0:
		target, err := p.r.target(in)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return p.tw.WriteHeader(h)
	case !in.mode.IsRegular():
		return nil
	}
	if first, again := p.first[in.place()]; again {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return p.tw.WriteHeader(h)
	}
	if in.links > 1 && len(p.first) < linksMax {
		p.first[in.place()] = h.Name
	}
	h.Typeflag, h.Size = tar.TypeReg, in.size
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(p.tw, UntilDone(p.ctx, in.content()))
	return err
}
