package rootfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Tree is a root filesystem in memory while layers are applied: the names and metadata of the
// files, without their contents. Nothing in it touches the host's file system, so no name and no
// link can lead out of it. It is not safe for concurrent use.
type Tree struct {
	root  *node
	layer int // the number of the current layer
	made  int // number of directories so far that no entry made
	// lenient is for layers of other tools: the last of several entries with the same name counts, and
	// links in the path of a file are followed (walk.go).
	lenient bool
	memory  *treeMemory // of the names and nodes; nil is not counted
	// below, unless nil, is the root filesystem below the files: the tree has only the files of a layer (over.go).
	below *Base
}

// node is a file of any kind. It may have several names.
type node struct {
	mode     fs.FileMode
	uid, gid uint32
	mtime    time.Time
	rdev     uint32            // of a device
	target   string            // of a symbolic link
	content  *io.SectionReader // of a regular file
	names    map[string]dentry // of a directory
	// implicit is set for a directory that so far only its children name.
	implicit bool
	// opaque is set for a directory of a layer that has none of the entries of the directory below.
	opaque bool
	// hidden is set for a directory of a layer if the directory below is removed with its entries.
	hidden bool
	// links is the number of its names while it is written.
	links uint32
	// since is the layer that a file comes from, and lost the last layer that removed a name from a directory.
	since, lost int
}

// dentry is a name in a directory, with the layer that it comes from.
type dentry struct {
	*node
	layer int
}

// newTree returns an empty root.
func newTree() *Tree {
	return &Tree{root: newDir()}
}

// newDir returns a directory that no entry made.
func newDir() *node {
	return &node{mode: fs.ModeDir | 0o755, mtime: time.Unix(0, 0), names: map[string]dentry{}, implicit: true}
}

// isDir reports whether there is a directory.
func (n dentry) isDir() bool { return n.node != nil && n.mode.IsDir() }

// name returns the entry of a directory with a name; an empty entry for a missing name, and for a
// file.
func (n *node) name(base string) dentry {
	if n == nil {
		return dentry{}
	}
	return n.names[base]
}

// split returns the elements of a clean relative name.
func split(clean string) []string {
	if clean == "." {
		return nil
	}
	return strings.Split(clean, "/")
}

// lookup returns the entry with a clean name, without following links.
func (t *Tree) lookup(clean string) (dentry, bool) {
	at := dentry{node: t.root}
	for _, part := range split(clean) {
		if !at.isDir() {
			return dentry{}, false
		}
		next, ok := at.names[part]
		if !ok {
			return dentry{}, false
		}
		at = next
	}
	return at, true
}

// put gives a file a name. An existing directory keeps its entries and takes the other attributes;
// any other file of lower layers is replaced. A name that comes twice in a layer is an error with
// code Invalid, unless lenient.
func (t *Tree) put(clean string, n *node) error {
	if clean == "." {
		if !n.mode.IsDir() {
			return sandbox.Errorf(sandbox.Invalid, "the root filesystem's root is not a directory")
		}
		t.root.become(n)
		return nil
	}
	dir, err := t.dir(path.Dir(clean))
	if err != nil {
		return err
	}
	base := strings.Clone(path.Base(clean)) // the whole path may have thousands of bytes
	old, taken := dir.names[base]
	switch {
	case taken && t.below != nil && old.isWhiteout():
		n.opaque = n.mode.IsDir()
		dir.names[base] = dentry{n, t.layer}
		return nil
	case taken && old.isDir() && n.mode.IsDir():
		old.become(n)
		dir.names[base] = dentry{old.node, t.layer}
		return nil
	case taken && old.layer == t.layer && !t.lenient:
		return sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q twice", clean)
	}
	dir.names[base] = dentry{n, t.layer}
	return t.memory.add(base, n)
}

// become gives a directory the metadata of another directory.
func (n *node) become(other *node) {
	n.mode, n.uid, n.gid, n.mtime, n.implicit = other.mode, other.uid, other.gid, other.mtime, false
}

// link gives an existing file another name.
func (t *Tree) link(clean, target string) error {
	dir, err := t.find(path.Dir(target))
	if err != nil {
		return err
	}
	n := dir.name(path.Base(target))
	if n.node == nil && t.below != nil {
		if n.node, err = t.copyUp(target); err != nil {
			return err
		}
	}
	if n.node == nil || n.isDir() || t.below != nil && n.isWhiteout() {
		return sandbox.Errorf(sandbox.Invalid, "the hard link %.300q leads to %.300q, which is not a file", clean, target)
	}
	return t.put(clean, n.node)
}

// hide removes the entry of a name from lower layers, but not from this layer.
func (t *Tree) hide(clean string) error {
	if t.below != nil {
		return t.whiteOut(clean)
	}
	dir, err := t.find(path.Dir(clean))
	if dir != nil {
		t.hideName(dir, path.Base(clean))
	}
	return err
}

// hideAll is hide for every name in a directory.
func (t *Tree) hideAll(clean string) error {
	if t.below != nil {
		return t.makeOpaque(clean)
	}
	dir, err := t.find(clean)
	if dir != nil {
		t.hideNames(dir)
	}
	return err
}

func (t *Tree) hideNames(dir *node) {
	for base := range dir.names {
		t.hideName(dir, base)
	}
}

func (t *Tree) hideName(dir *node, base string) {
	switch n, ok := dir.names[base]; {
	case !ok:
	case n.layer != t.layer:
		delete(dir.names, base)
		dir.lost = t.layer
	case n.isDir():
		t.hideNames(n.node)
	}
}

// Read reads a root filesystem into an empty tree. The contents of files stay in its files, which must
// be open for as long as the tree is used. Errors: as of [Scratch.Files].
func (t *Tree) Read(s *Stack) error {
	root, err := s.rootDir()
	if err != nil {
		return fmt.Errorf("read root filesystem: %w", err)
	}
	if t.root, err = s.node(root, map[place]*node{}, t.memory); err != nil {
		return fmt.Errorf("read root filesystem: %w", err)
	}
	t.layer = 1 // later entries lie over the existing files
	return nil
}
