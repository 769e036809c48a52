package rootfs

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/user"

	"github.com/modbox/modbox/internal/sandbox"
)

// CopyRequest describes files to copy over a root filesystem, as COPY and ADD of a Dockerfile do.
type CopyRequest struct {
	From *Files
	// Sources are paths in From, which may have wildcards. The entries of a directory are copied, not
	// the directory. Symbolic links in a path are followed; symbolic links inside a directory are
	// copied as links.
	Sources []string
	// Inline are additional files that are not in From.
	Inline []InlineFile
	// To is an absolute path; with a slash at its end it is a directory. It is made with its parents
	// if it is missing.
	To string
	// Owner is "user", "user:group" or numbers, resolved in the root filesystem; "" is root, and for
	// unpacked archives the owners in the archive. With KeepOwners and without an Owner, files keep
	// their owners of From.
	Owner      string
	KeepOwners bool
	// Mode, unless nil, are the permission bits of all copies.
	Mode *uint32
	// Unpack unpacks the archives among the files, which have at most UnpackMax together; zero is 16
	// GiB and half a million files.
	Unpack    bool
	UnpackMax ArchiveLimits
}

// InlineFile is a file with its content.
type InlineFile struct{ Name, Content string }

// Copy is a request with its sources resolved.
type Copy struct {
	request CopyRequest
	sources []source
}

// source is a file to copy, and its last name.
type source struct {
	base string
	*node
}

// NewCopy resolves the sources of a request. Errors: Invalid, naming the source, for a missing
// source; TooLarge for too many files; the error of a context that has ended.
func NewCopy(ctx context.Context, req CopyRequest) (*Copy, error) {
	c := &Copy{request: req}
	for _, pattern := range req.Sources {
		found, err := req.From.match(ctx, pattern)
		if err != nil {
			return nil, err
		}
		if c.sources = append(c.sources, found...); len(c.sources) > matchMax {
			return nil, sandbox.Errorf(sandbox.TooLarge, "the sources match more than %d names", matchMax)
		}
	}
	for _, f := range req.Inline {
		c.sources = append(c.sources, source{f.Name, &node{
			mode: 0o644, mtime: time.Unix(0, 0), content: io.NewSectionReader(strings.NewReader(f.Content), 0, int64(len(f.Content))),
		}})
	}
	if len(c.sources) > 1 && !strings.HasSuffix(req.To, "/") {
		return nil, sandbox.Errorf(sandbox.Invalid, "more than one file cannot be copied to %.300q, which has no / at its end", req.To)
	}
	return c, nil
}

// matchMax bounds the intermediate matches of a pattern: symbolic links that lead back up give a
// file more names than can be counted.
const matchMax = 250_000

// match returns the files that match a pattern, by name.
func (f *Files) match(ctx context.Context, pattern string) ([]source, error) {
	at := []string{"."}
	clean := strings.TrimPrefix(path.Clean("/"+pattern), "/")
	for _, part := range split(path.Clean(clean)) {
		var next []string
		for _, dir := range at {
			_, n, err := f.tree.resolve(dir)
			if err != nil {
				return nil, err
			}
			names, err := n.matching(ctx, part)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "%.300q is not a pattern of names", pattern)
			}
			if len(next)+len(names) > matchMax {
				return nil, sandbox.Errorf(sandbox.TooLarge, "%.300q matches more than %d names", pattern, matchMax)
			}
			for _, base := range names {
				next = append(next, path.Join(dir, base))
			}
		}
		at = next
	}
	var found []source
	for _, name := range at {
		_, n, err := f.tree.resolve(name)
		if err != nil {
			return nil, err
		}
		if n != nil { // a broken link does not match
			found = append(found, source{path.Base(name), n})
		}
	}
	if len(found) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "there is no %.300q to copy; it may be ignored by .dockerignore", pattern)
	}
	return found, nil
}

// matching returns the names in a directory that match a pattern, in order.
func (n *node) matching(ctx context.Context, pattern string) ([]string, error) {
	if n == nil {
		return nil, nil
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		if n.name(pattern).node == nil {
			return nil, nil
		}
		return []string{pattern}, nil
	}
	var names []string
	for base := range n.names {
		ok, err := path.Match(pattern, base)
		if err := cmp.Or(ctx.Err(), err); err != nil { // a directory may have very many entries
			return nil, err
		}
		if ok {
			names = append(names, base)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Key identifies the content of the copy: names, kinds, modes and contents, but not times, and
// owners only with KeepOwners. It reads the files once.
func (c *Copy) Key(ctx context.Context) (string, error) {
	h := sha256.New()
	r := &c.request
	head, err := json.Marshal([]any{"copy 2", r.To, r.Owner, r.KeepOwners, r.Mode, r.Unpack})
	if err != nil {
		return "", err
	}
	h.Write(head)
	for _, s := range c.sources {
		if err := r.From.sum(ctx, h, s.base, s.node, r.KeepOwners); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sum adds a file and everything below it to a hash.
func (f *Files) sum(ctx context.Context, h hash.Hash, name string, n *node, keepOwner bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	what := n.target
	if n.mode.IsRegular() {
		if f.sums[n] == "" {
			content := sha256.New()
			if _, err := io.Copy(content, io.NewSectionReader(n.content, 0, n.content.Size())); err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			f.sums[n] = hex.EncodeToString(content.Sum(nil))
		}
		what = f.sums[n]
	}
	facts := []any{name, n.mode, what, len(n.names)}
	if keepOwner {
		facts = append(facts, n.uid, n.gid)
	}
	line, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	h.Write(line)
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		if err := f.sum(ctx, h, base, n.names[base].node, keepOwner); err != nil {
			return err
		}
	}
	return nil
}

// WriteLayer writes the copies as an OCI layer over a root filesystem. Errors: Invalid, also when
// an existing file is in the way; the errors of unpacking; w's.
func (c *Copy) WriteLayer(ctx context.Context, s *Scratch, over *Files, w io.Writer) error {
	owner, err := over.owner(c.request.Owner)
	if err != nil {
		return err
	}
	t := s.Tree(ctx, over.payer)
	defer t.Close()
	p := &copier{payer: over.payer, under: over.tree, over: t, owner: owner, keep: c.request.KeepOwners && c.request.Owner == "", mode: c.request.Mode, copies: map[*node]*node{}}
	p.over.lenient = true
	unpacked, err := c.place(ctx, s, p)
	for _, f := range unpacked {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	out := layerOutput{tar: tw, under: over.tree, names: map[*node]string{}}
	if err := out.dir(ctx, "", p.over.root); err != nil {
		return err
	}
	return tw.Close()
}

// place puts all copies in their places, and returns the unpacked archives.
func (c *Copy) place(ctx context.Context, s *Scratch, p *copier) (unpacked []*Files, err error) {
	to, there, err := p.under.resolve(strings.Trim(c.request.To, "/"))
	if err != nil {
		return nil, err
	}
	isDir := strings.HasSuffix(c.request.To, "/") || to == "." || there != nil && there.mode.IsDir()
	if len(c.sources) == 0 {
		return nil, p.mkdir(to)
	}
	space := c.request.unpackLimits()
	for _, src := range c.sources {
		if err := ctx.Err(); err != nil {
			return unpacked, err
		}
		switch {
		case src.mode.IsDir():
			if err = p.mkdir(to); err == nil { // the directory itself is not copied
				err = p.contents(to, src.node)
			}
		case c.request.Unpack && src.mode.IsRegular() && isArchive(io.NewSectionReader(src.content, 0, src.content.Size())):
			var files *Files
			files, err = s.ReadArchive(ctx, p.payer, io.NewSectionReader(src.content, 0, src.content.Size()), space)
			if err != nil {
				return unpacked, fmt.Errorf("unpack %s: %w", src.base, err)
			}
			unpacked = append(unpacked, files)
			space.Bytes -= files.used.Bytes
			space.Entries -= files.used.Entries
			err = p.unpack(to, files.tree.root, c.request.Owner != "")
		case isDir:
			err = p.file(path.Join(to, src.base), src.node)
		default:
			err = p.file(to, src.node)
		}
		if err != nil {
			return unpacked, err
		}
	}
	return unpacked, nil
}

// unpackMax bounds the archives that a request unpacks, together: all stay in memory until the
// layer is written.
var unpackMax = ArchiveLimits{Bytes: 16 << 30, Entries: 500_000}

func (r *CopyRequest) unpackLimits() ArchiveLimits {
	if r.UnpackMax != (ArchiveLimits{}) {
		return r.UnpackMax
	}
	return unpackMax
}

// fileOwner is the owner of the copies.
type fileOwner struct{ uid, gid uint32 }

// databaseMax bounds the files of users and groups.
const databaseMax = 4 << 20

// owner resolves "user:group" in a root filesystem. Without a group it is the user's primary group,
// or for a number the same number.
func (f *Files) owner(spec string) (fileOwner, error) {
	if spec == "" {
		return fileOwner{}, nil
	}
	name, group, hasGroup := strings.Cut(spec, ":")
	var out fileOwner
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		out = fileOwner{uint32(n), uint32(n)}
	} else {
		users, err := database(f, "etc/passwd", func(r io.Reader) ([]user.User, error) {
			return user.ParsePasswdFilter(r, func(u user.User) bool { return u.Name == name })
		})
		if err != nil || len(users) == 0 {
			return out, sandbox.Errorf(sandbox.Invalid, "there is no user %.100q in the image", name)
		}
		out = fileOwner{uint32(users[0].Uid), uint32(users[0].Gid)}
	}
	if !hasGroup {
		return out, nil
	}
	if n, err := strconv.ParseUint(group, 10, 32); err == nil {
		out.gid = uint32(n)
		return out, nil
	}
	groups, err := database(f, "etc/group", func(r io.Reader) ([]user.Group, error) {
		return user.ParseGroupFilter(r, func(g user.Group) bool { return g.Name == group })
	})
	if err != nil || len(groups) == 0 {
		return out, sandbox.Errorf(sandbox.Invalid, "there is no group %.100q in the image", group)
	}
	out.gid = uint32(groups[0].Gid)
	return out, nil
}

// database returns the entries of a file of users or groups.
func database[T any](f *Files, name string, parse func(io.Reader) ([]T, error)) ([]T, error) {
	data, err := f.ReadFile(name, databaseMax)
	if err != nil {
		return nil, err
	}
	return parse(strings.NewReader(string(data)))
}
