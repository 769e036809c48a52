package snapshot

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Names with a meaning in a layer.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

const (
	// namesPerChange is the number of names in memory for each change that a caller asks for: most
	// directories of a layer have not changed.
	namesPerChange = 4
	// linkedMax bounds the files whose sizes are remembered for their other names, linkedTargets the bytes
	// of their targets.
	linkedMax, linkedTargets = 200_000, 8 << 20
	// pageBytes bounds the names and targets of one answer, which JSON makes up to six times as long.
	pageBytes = 2 << 20
	// layerNameMax bounds a name of a layer, and the target of a symbolic link.
	layerNameMax = 4096
)

// layerName is a name in a layer.
type layerName struct {
	file   sandbox.SnapshotFile
	gone   bool // the layer removes it
	opaque bool // of a directory: nothing of the directory below is visible
}

// layerNames collects the names of a layer that a part of a diff needs: a bounded number, in the order of
// [DiffPage]. The layer has them in any order.
type layerNames struct {
	q    DiffQuery
	most int
	list []layerName // those in question, in order after read
	full bool        // the layer has further names behind list
	// above has the names on the way to the path and to the place where the part begins.
	above   map[string]*layerName
	seed    maphash.Seed
	linked  map[uint64]linkedFile // by name; nil after read
	targets int                   // bytes of the targets in linked
}

// linkedFile has the type, size and target that further names of a file share with it.
type linkedFile struct {
	mode   fs.FileMode
	size   int64
	target string
}

func newLayerNames(q DiffQuery) *layerNames {
	return &layerNames{q: q, most: namesPerChange*q.Limit + 1, above: map[string]*layerName{}, seed: maphash.MakeSeed(), linked: map[uint64]linkedFile{}}
}

// read reads a layer, which is hostile, with or without the contents of files.
func (n *layerNames) read(r io.Reader) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			n.cut()
			n.linked = nil
			_, err := io.Copy(io.Discard, r) // the padding at the end of a tar
			return err
		}
		if err != nil {
			return fmt.Errorf("read the names of a layer: %w", err)
		}
		if err := n.entry(h); err != nil {
			return err
		}
	}
}

func (n *layerNames) entry(h *tar.Header) error {
	name := path.Clean("/" + h.Name)
	if name == "/" || len(name) > layerNameMax {
		return nil
	}
	dir, base := path.Split(name)
	switch gone, marked := strings.CutPrefix(base, whiteout); {
	case base == opaque:
		n.markOpaque(path.Clean(dir))
		return nil
	case marked && gone != "":
		n.add(layerName{file: sandbox.SnapshotFile{Path: dir + gone}, gone: true})
		return nil
	}
	f, err := n.describe(name, h)
	if err != nil {
		return err
	}
	n.add(layerName{file: f})
	return nil
}

// describe describes the file of an entry.
func (n *layerNames) describe(name string, h *tar.Header) (sandbox.SnapshotFile, error) {
	f := sandbox.SnapshotFile{Path: name, Mode: h.FileInfo().Mode(), UID: uint32(h.Uid), GID: uint32(h.Gid), ModTime: h.ModTime, Size: h.Size}
	if h.ModTime.Before(time.Unix(0, 0)) {
		f.ModTime = time.Unix(0, 0)
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		// The name is a part of the whole extended header, which must not stay in memory.
		f.Target, f.Size = strings.Clone(h.Linkname[:min(len(h.Linkname), layerNameMax)]), 0
	case tar.TypeLink:
		if of, ok := n.linked[maphash.String(n.seed, path.Clean("/"+h.Linkname))]; ok {
			f.Mode, f.Size, f.Target = of.mode, of.size, of.target
		}
	case tar.TypeReg:
		if size, ok := h.PAXRecords[driver.LayerSize]; ok {
			var err error
			if f.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
				return f, fmt.Errorf("size of %.300q in a layer: %w", name, err)
			}
		}
	}
	if !f.Mode.IsDir() && h.Typeflag != tar.TypeLink && len(n.linked) < linkedMax && n.targets+len(f.Target) <= linkedTargets {
		n.linked[maphash.String(n.seed, name)] = linkedFile{f.Mode, f.Size, f.Target}
		n.targets += len(f.Target)
	}
	return f, nil
}

// markOpaque marks a directory, whose own entry comes before its mark.
func (n *layerNames) markOpaque(dir string) {
	if at := n.above[dir]; at != nil {
		at.opaque = true
	}
	for i := len(n.list) - 1; i >= 0; i-- {
		if n.list[i].file.Path == dir {
			n.list[i].opaque = true
			return
		}
	}
}

func (n *layerNames) add(l layerName) {
	name := l.file.Path
	if isWithin(n.q.Path, name) || n.q.After != "" && isWithin(n.q.After, name) {
		own := l
		n.above[name] = &own
	}
	if !isWithin(name, n.q.Path) || n.q.After != "" && comparePaths(name, n.q.After) <= 0 {
		return
	}
	n.list = append(n.list, l)
	if len(n.list) >= 2*n.most {
		n.cut()
	}
}

// cut sorts the names and drops the last if they are too many.
func (n *layerNames) cut() {
	more := false
	n.list, more = first(n.list, n.most)
	n.full = n.full || more
}

// first returns the first names in order, at most most, and reports whether there are more.
func first(list []layerName, most int) (_ []layerName, more bool) {
	slices.SortStableFunc(list, func(a, b layerName) int { return comparePaths(a.file.Path, b.file.Path) })
	if more = len(list) > most; more {
		clear(list[most:])
		list = list[:most]
	}
	return list, more
}

// isWithin reports whether a clean path is a directory or below it.
func isWithin(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// comparePaths compares paths by their elements: a directory comes right before its entries.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch x, y := a[i], b[i]; {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		default:
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}

// comparison compares the names of a layer with the root filesystem below.
type comparison struct {
	*layerNames
	ctx  context.Context
	root Rootfs
	page DiffPage
	size int // bytes of the names and targets in page
}

// compare returns the part of the diff.
func (n *layerNames) compare(ctx context.Context, root Rootfs) (DiffPage, error) {
	c := comparison{layerNames: n, ctx: ctx, root: root}
	done, err := c.whole()
	if err != nil || done {
		return c.page, err
	}
	if err := c.addHidden(); err != nil {
		return DiffPage{}, err
	}
	for i := range n.list {
		if err := ctx.Err(); err != nil {
			return DiffPage{}, err
		}
		if len(c.page.Changes) == n.q.Limit || c.size > pageBytes || n.full && i == len(n.list)-1 {
			c.page.Next = n.list[i-1].file.Path
			return c.page, nil
		}
		if err := c.add(&n.list[i]); err != nil {
			return DiffPage{}, err
		}
	}
	return c.page, nil
}

// before returns a name in the root filesystem below; nil for none.
func (c *comparison) before(name string) (*sandbox.SnapshotFile, error) {
	f, err := c.root.Stat(name)
	switch code := sandbox.CodeOf(err); {
	case err == nil:
		return &f, nil
	case code == sandbox.FileNotFound || code == sandbox.Invalid: // Invalid: longer than names in images are asked for
		return nil, nil
	}
	return nil, err
}

// whole answers for a path that as a whole is missing in the sandbox, or that exists nowhere.
func (c *comparison) whole() (done bool, err error) {
	if c.q.Path == "/" {
		return false, nil
	}
	missing := false
	for dir := path.Dir(c.q.Path); ; dir = path.Dir(dir) {
		if at := c.above[dir]; at != nil {
			missing = missing || !at.file.Mode.IsDir() || at.opaque && c.above[c.q.Path] == nil
		}
		if dir == "/" {
			break
		}
	}
	below, err := c.before(c.q.Path)
	if err != nil {
		return false, err
	}
	at := c.above[c.q.Path]
	switch {
	case below == nil && (at == nil || at.gone || missing):
		return false, sandbox.Errorf(sandbox.FileNotFound, "there is no %.300q in the sandbox or in its image", c.q.Path)
	case missing && c.q.After == "":
		c.page.Changes = []Change{{Kind: Removed, File: *below}}
	}
	return missing, nil
}

// addHidden adds to the list the names of the root filesystem that opaque directories hide.
func (c *comparison) addHidden() error {
	var hidden []layerName
	more := false // than hidden
	have := map[string]bool{}
	for i := range c.list {
		have[c.list[i].file.Path] = true
	}
	isOpaque := map[string]bool{}
	visit := func(l *layerName) error {
		dir := l.file.Path
		if isOpaque[dir] || l.gone || !l.file.Mode.IsDir() || !l.opaque && !isOpaque[path.Dir(dir)] {
			return nil
		}
		isOpaque[dir] = true
		if more && comparePaths(dir, hidden[c.most-1].file.Path) >= 0 {
			return nil // all below are behind those
		}
		names, err := c.missing(dir, have)
		if hidden = append(hidden, names...); len(hidden) > 2*c.most {
			hidden, more = first(hidden, c.most)
		}
		return err
	}
	above := make([]string, 0, len(c.above))
	for name := range c.above {
		above = append(above, name)
	}
	slices.SortFunc(above, comparePaths)
	for _, name := range above {
		if err := visit(c.above[name]); err != nil {
			return err
		}
	}
	for i := range c.list {
		if err := visit(&c.list[i]); err != nil {
			return err
		}
	}
	c.list = append(c.list, hidden...)
	c.cut()
	c.full = c.full || more
	return nil
}

// missing returns the entries of a directory of the root filesystem that are in the part and not in
// the layer.
func (c *comparison) missing(dir string, have map[string]bool) (names []layerName, err error) {
	if c.q.Path != dir && isWithin(c.q.Path, dir) {
		return nil, nil // only the path itself could be in the part, and the layer has it: see whole
	}
	below, err := c.before(dir)
	if err != nil || below == nil || !below.Mode.IsDir() {
		return nil, err
	}
	q := sandbox.SnapshotFileQuery{Path: dir, Limit: diffMax}
	if c.q.After != dir && isWithin(c.q.After, dir) {
		q.After = c.q.After
	}
	for len(names) <= c.most {
		part, err := c.root.Files(c.ctx, q)
		if err != nil {
			return nil, err
		}
		for _, f := range part.Files {
			q.After = f.Path
			switch {
			case c.full && comparePaths(f.Path, c.list[len(c.list)-1].file.Path) >= 0:
				return names, nil
			case have[f.Path] || c.above[f.Path] != nil || !isWithin(f.Path, c.q.Path):
			case c.q.After != "" && comparePaths(f.Path, c.q.After) <= 0:
			default:
				names = append(names, layerName{file: sandbox.SnapshotFile{Path: f.Path}, gone: true})
			}
		}
		if !part.More {
			break
		}
	}
	return names, nil
}

// add adds the change of a name to the page, if it is one.
func (c *comparison) add(l *layerName) error {
	below, err := c.before(l.file.Path)
	if err != nil {
		return err
	}
	switch {
	case l.gone && below != nil:
		c.put(Change{Kind: Removed, File: *below})
	case l.gone:
	case below == nil:
		c.put(Change{Kind: Added, File: l.file})
	case !l.file.Mode.IsDir() || l.file.Mode != below.Mode || l.file.UID != below.UID || l.file.GID != below.GID:
		c.put(Change{Kind: Changed, File: l.file, Before: below})
	}
	return nil
}

// put puts a change on the page.
func (c *comparison) put(ch Change) {
	c.page.Changes = append(c.page.Changes, ch)
	if c.size += len(ch.File.Path) + len(ch.File.Target); ch.Before != nil {
		c.size += len(ch.Before.Target)
	}
}
