package rootfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// Base is the root filesystem below a layer.
type Base struct {
	Stack   *Stack
	Digests []string // of the root filesystem and of all below it, the nearest first
	Files   int64    // the number of names in it
	// Keep, unless 0, makes the layer one over so many of the lowest root filesystems alone: it also has the files of
	// all between.
	Keep int
}

// Over makes an empty tree one for the files of a layer alone, over a base that must stay open for as
// long as the tree is used. Removed files become whiteouts.
func (t *Tree) Over(b Base) { t.below, t.layer = &b, 1 }

// list writes the digests of the base into the file of the layer.
func (b *Base) list(erofs string) error {
	f, err := os.OpenFile(erofs, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(stack.Write(f, b.Digests), f.Close())
}

// isWhiteout reports whether a node of a tree over a base hides a name of the base.
func (n *node) isWhiteout() bool { return n.mode&fs.ModeCharDevice != 0 && n.rdev == 0 }

func newWhiteout() *node {
	return &node{mode: fs.ModeDevice | fs.ModeCharDevice, mtime: newDir().mtime}
}

// whiteOut is hide for a tree over a base.
func (t *Tree) whiteOut(clean string) error {
	if clean == "." || t.replaces(path.Dir(clean)) {
		return nil
	}
	dir, err := t.dir(path.Dir(clean))
	if err != nil {
		return err
	}
	base := path.Base(clean)
	switch n, ok := dir.names[base]; {
	case !ok:
		n = dentry{newWhiteout(), t.layer}
		dir.names[base] = n
		return t.memory.add(base, n.node)
	case n.isDir():
		n.opaque, n.hidden = true, true
	}
	return nil
}

// makeOpaque is hideAll for a tree over a base.
func (t *Tree) makeOpaque(clean string) error {
	if t.replaces(clean) {
		return nil
	}
	dir, err := t.dir(clean)
	if err == nil {
		dir.opaque = true
	}
	return err
}

// replaces reports whether the layer has a whiteout or a file instead of a directory, or above it: the
// directory has nothing to hide.
func (t *Tree) replaces(clean string) bool {
	at := t.root
	for _, part := range split(clean) {
		next, ok := at.names[part]
		if !ok {
			return false
		}
		if !next.isDir() {
			return true
		}
		at = next.node
	}
	return false
}

// copyUp makes a visible file of the base a file of the layer, and returns it; nil for none.
func (t *Tree) copyUp(clean string) (*node, error) {
	at, opaque := t.root, false
	for _, part := range split(clean) {
		opaque = opaque || at.opaque // of what is below an opaque directory, nothing is visible
		next, ok := at.names[part]
		if !ok && opaque || ok && !next.isDir() {
			return nil, nil
		}
		if !ok {
			break
		}
		at = next.node
	}
	in, ok, err := t.below.Stack.find(clean)
	if err != nil || !ok || in.mode.IsDir() {
		return nil, err
	}
	n, err := t.below.Stack.plain(in)
	if err != nil {
		return nil, err
	}
	return n, t.put(clean, n)
}

// settle completes the tree of a layer: directories that only their entries name become like the
// directories below, opaque directories get whiteouts, and whiteouts of nothing disappear. It returns by
// how many names the layer makes the base larger. Errors: as of [Tree.Read]; the context's.
func (t *Tree) settle(ctx context.Context) (added int64, err error) {
	root, err := t.below.Stack.rootDir()
	if err != nil {
		return 0, err
	}
	if t.root.implicit {
		t.root.like(root)
	}
	return settler{ctx, t}.dir(t.root, &root)
}

// like gives a directory the metadata of a directory of the base.
func (n *node) like(in inode) {
	n.become(&node{mode: in.mode, uid: in.uid, gid: in.gid, mtime: in.mtime})
}

// settler settles a tree.
type settler struct {
	ctx context.Context // ends the work
	*Tree
}

// dir settles a directory over the directory below, nil for none.
func (s settler) dir(dir *node, below *inode) (added int64, err error) {
	if dir.opaque && below != nil {
		if err := s.hideBelow(dir, *below); err != nil {
			return 0, err
		}
	}
	for base, n := range dir.names {
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		n.opaque = n.opaque || dir.opaque && n.isDir()
		n.hidden = n.hidden || dir.opaque
		var in inode
		exists := false
		if below != nil {
			if in, exists, err = s.below.Stack.child(*below, base); err != nil {
				return 0, err
			}
		}
		more, keep, err := s.name(base, n.node, in, exists)
		if err != nil {
			return 0, err
		}
		if added += more; !keep {
			delete(dir.names, base)
		}
	}
	return added, nil
}

// hideBelow adds whiteouts of the names in the directory below that a directory does not have.
func (s settler) hideBelow(dir *node, below inode) error {
	return s.below.Stack.children(below, func(base string, _ inode) error {
		if _, ok := dir.names[base]; ok {
			return s.ctx.Err()
		}
		n := newWhiteout()
		dir.names[base] = dentry{n, s.layer}
		return errors.Join(s.memory.add(base, n), s.ctx.Err())
	})
}

// name settles a name over a file of the base, if that exists. It also returns whether the layer needs
// the name.
func (s settler) name(base string, n *node, in inode, exists bool) (added int64, keep bool, err error) {
	gone := int64(0) // names of the base that are covered
	if exists {
		gone = 1
	}
	if !n.mode.IsDir() {
		if exists && in.mode.IsDir() {
			more, err := s.below.Stack.count(s.ctx, in)
			if err != nil {
				return 0, false, err
			}
			gone += more
		}
		if n.isWhiteout() {
			return -gone, exists, nil
		}
		return 1 - gone, true, nil
	}
	var below *inode
	if exists && in.mode.IsDir() {
		below = &in
	}
	if added, err = s.dir(n, below); err != nil {
		return 0, false, err
	}
	switch {
	case n.implicit && n.hidden && n.isEmptied():
		*n = *newWhiteout()
		return added - gone, exists, nil
	case n.implicit && len(n.names) == 0:
		return added, false, nil
	case n.implicit && below != nil:
		n.like(in)
	case n.implicit && exists:
		return 0, false, sandbox.Errorf(sandbox.Invalid, "the root filesystem has files under %.300q, which is not a directory", base)
	}
	return added + 1 - gone, true, nil
}

// isEmptied reports whether a directory has whiteouts alone.
func (n *node) isEmptied() bool {
	for _, child := range n.names {
		if !child.isWhiteout() {
			return false
		}
	}
	return true
}
