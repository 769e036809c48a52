package rootfs

import (
	"context"
	"errors"
)

// merge makes the settled tree of a layer a tree over the lowest root filesystems of its base alone, with the
// files and the whiteouts of all layers between. Errors: as of [Tree.settle].
func (t *Tree) merge(ctx context.Context) error {
	all, lowest := t.below.Stack, len(t.below.Digests)-t.below.Keep
	m := merger{ctx, t, &Stack{disks: all.disks[:lowest]}, map[place]*node{}}
	t.root.settled()
	root, err := m.upper.rootDir()
	if err == nil {
		err = m.dir(t.root, root)
	}
	if err != nil {
		return err
	}
	t.below = &Base{Stack: &Stack{disks: all.disks[lowest:]}, Digests: t.below.Digests[lowest:]}
	_, err = t.settle(ctx)
	return err
}

// settled makes no directory look like a directory below it any more.
func (n *node) settled() {
	n.implicit = false
	for _, child := range n.names {
		child.settled()
	}
}

// merger adds files of layers to a tree.
type merger struct {
	ctx   context.Context // ends the work
	tree  *Tree
	upper *Stack          // the layers
	seen  map[place]*node // the files found so far
}

// dir adds the entries of a directory of the layers to a directory of the tree, which lies over it.
func (m merger) dir(dir *node, in inode) error {
	dir.opaque = dir.opaque || in.opaque
	return m.upper.entries(in, func(e entry) error {
		child, visible, err := e.inode()
		if err != nil {
			return err
		}
		over := dir.names[e.name]
		switch {
		case over.node == nil && !visible:
			return m.add(dir, e.name, newWhiteout())
		case over.node == nil:
			n, err := m.node(child)
			if err != nil {
				return err
			}
			return errors.Join(m.add(dir, e.name, n), m.ctx.Err())
		case over.isDir() && visible && child.mode.IsDir():
			return m.dir(over.node, child)
		case over.isDir():
			over.opaque = true
		}
		return m.ctx.Err()
	})
}

func (m merger) add(dir *node, name string, n *node) error {
	dir.names[name] = dentry{node: n}
	return m.tree.memory.add(name, n)
}

// node returns the node of a file of the layers, with its entries.
func (m merger) node(in inode) (*node, error) {
	if n := m.seen[in.place()]; n != nil {
		return n, nil
	}
	n, err := m.upper.plain(in)
	if err != nil {
		return nil, err
	}
	if in.mode.IsDir() {
		return n, m.dir(n, in)
	}
	if in.links > 1 {
		m.seen[in.place()] = n
	}
	return n, nil
}
