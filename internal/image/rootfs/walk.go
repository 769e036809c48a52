package rootfs

import (
	"io/fs"
	"path"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// maxLinks bounds the symbolic links in the path of a file, as on Linux.
	maxLinks = 40
	// maxSteps bounds the elements of a name together with the elements of its links, and so the cost
	// of an entry. No name alone has as many.
	maxSteps = pathMax
)

// dir returns the directory with a clean name, and makes it if it is missing, for an entry of the
// current layer.
func (t *Tree) dir(clean string) (*node, error) { return t.walk(clean, true) }

// find is dir without making directories: a missing directory is nil.
func (t *Tree) find(clean string) (*node, error) { return t.walk(clean, false) }

// step is a directory in a path, and the length of its path.
type step struct {
	dir    *node
	length int
}

// walk walks from the root to the directory with a clean name. In a lenient tree it follows
// symbolic links in the path, as a system with this root would: an absolute link begins here, and
// the parent of the root is the root. Errors have code Invalid: a file in the path, too many links,
// too long a path.
func (t *Tree) walk(clean string, create bool) (*node, error) {
	rest := split(clean)
	way := []step{{dir: t.root}}
	for links, steps := 0, 0; len(rest) > 0; steps++ {
		part, at := rest[0], way[len(way)-1]
		rest = rest[1:]
		switch part { // only links have such elements
		case "", ".":
			continue
		case "..":
			way = way[:max(1, len(way)-1)]
			continue
		}
		next, ok := at.dir.names[part]
		switch {
		case ok && t.lenient && next.mode&fs.ModeSymlink != 0:
			rest = append(strings.Split(next.target, "/"), rest...)
			if links++; links > maxLinks || steps+len(rest) > maxSteps {
				return nil, tooFar(clean)
			}
			if path.IsAbs(next.target) {
				way = way[:1]
			}
			continue
		case ok && create && t.below != nil && next.isWhiteout():
			next.node = newDir()
			next.implicit, next.opaque = false, true
			t.made++
		case !ok && !create:
			return nil, nil
		case !ok:
			next.node = newDir()
			t.made++
			part = strings.Clone(part)
			if err := t.memory.add(part, next.node); err != nil {
				return nil, err
			}
		case !next.isDir() && !create:
			return nil, nil
		case !next.isDir():
			return nil, sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q under %.300q, which is not a directory", clean, part)
		}
		if create {
			next.layer = t.layer // a later whiteout of the layer must not hide it
			at.dir.names[part] = next
		}
		length := at.length + len(part) + 1
		if length > pathMax {
			return nil, tooFar(clean)
		}
		way = append(way, step{next.node, length})
	}
	return way[len(way)-1].dir, nil
}

func tooFar(clean string) error {
	return sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q under symbolic links that lead in a circle or too far", clean)
}
