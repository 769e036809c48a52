package rootfs

import (
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
	if clean == "." {
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
		n.opaque = true
	}
	return nil
}

// copyUp makes a visible file of the base a file of the layer, and returns it; nil for none.
func (t *Tree) copyUp(clean string) (*node, error) {
	at := t.root
	for _, part := range split(clean) {
		next, ok := at.names[part]
		if !ok && at.opaque || ok && !next.isDir() {
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
// how many names the layer makes the base larger.
func (t *Tree) settle() (added int64, err error) {
	root, err := t.below.Stack.rootDir()
	if err != nil {
		return 0, err
	}
	if t.root.implicit {
		t.root.like(root)
	}
	return t.settleDir(t.root, &root)
}

// like gives a directory the metadata of a directory of the base.
func (n *node) like(in inode) {
	n.become(&node{mode: in.mode, uid: in.uid, gid: in.gid, mtime: in.mtime})
}

// settleDir is settle for a directory over the directory below, nil for none.
func (t *Tree) settleDir(dir *node, below *inode) (added int64, err error) {
	entries := map[string]entry{}
	if below != nil {
		if err := t.below.Stack.entries(*below, func(e entry) error { entries[e.name] = e; return nil }); err != nil {
			return 0, err
		}
	}
	if dir.opaque {
		for base := range entries {
			if _, ok := dir.names[base]; ok {
				continue
			}
			n := newWhiteout()
			dir.names[base] = dentry{n, t.layer}
			if err := t.memory.add(base, n); err != nil {
				return 0, err
			}
		}
	}
	for base, n := range dir.names {
		n.opaque = n.opaque || dir.opaque && n.isDir()
		in, exists, err := t.hidden(entries, base)
		if err != nil {
			return 0, err
		}
		more, keep, err := t.settleName(base, n.node, in, exists)
		if err != nil {
			return 0, err
		}
		if added += more; !keep {
			delete(dir.names, base)
		}
	}
	return added, nil
}

// hidden returns the file of the base that a name of the layer covers; false for none.
func (t *Tree) hidden(entries map[string]entry, base string) (in inode, exists bool, err error) {
	e, ok := entries[base]
	if !ok {
		return in, false, nil
	}
	return e.inode()
}

// settleName is settle for a name over a file of the base, if that exists. It also returns whether the
// layer needs the name.
func (t *Tree) settleName(base string, n *node, in inode, exists bool) (added int64, keep bool, err error) {
	gone := int64(0) // names of the base that are covered
	if exists {
		gone = 1
	}
	if !n.mode.IsDir() {
		if exists && in.mode.IsDir() {
			more, err := t.below.Stack.count(in)
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
	if added, err = t.settleDir(n, below); err != nil {
		return 0, false, err
	}
	switch {
	case n.implicit && len(n.names) == 0:
		return added, false, nil
	case n.implicit && below != nil:
		n.like(in)
	case n.implicit && exists:
		return 0, false, sandbox.Errorf(sandbox.Invalid, "the root filesystem has files under %.300q, which is not a directory", base)
	}
	return added + 1 - gone, true, nil
}
