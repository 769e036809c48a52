package rootfs

import (
	"io/fs"
	"path"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// maxLinks is how many symbolic links may be on the way to a file, as on Linux.
	maxLinks = 40
	// maxSteps bounds the elements of a name together with those of the links on its
	// way, and so what one entry can cost. No name alone has as many.
	maxSteps = pathMax
)

// dir returns the directory with a clean name, made when it is missing, for
// something that the current layer has in it.
func (t *Tree) dir(clean string) (*node, error) { return t.walk(clean, true) }

// find is dir without making anything: a directory that is not there is nil.
func (t *Tree) find(clean string) (*node, error) { return t.walk(clean, false) }

// step is a directory on a way, and the length of its path.
type step struct {
	dir    *node
	length int
}

// walk goes from the root to the directory with a clean name. In a lenient tree
// symbolic links on the way are followed as by a system that has this root: an
// absolute one begins here, and above the root is the root. Errors have code
// Invalid: something else is in the way, too many links, too long a path.
func (t *Tree) walk(clean string, create bool) (*node, error) {
	rest := split(clean)
	way := []step{{dir: t.root}}
	for links, steps := 0, 0; len(rest) > 0; steps++ {
		part, at := rest[0], way[len(way)-1]
		rest = rest[1:]
		switch part { // links have such elements, clean names do not
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
			next.layer = t.layer // what hides it may come later in the layer
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
