package rootfs

import (
	"context"
	"errors"
	"path"
)

// difference makes a tree of what differs between a tree and a root filesystem that it began as: the files of the
// layers since, and whiteouts for the names that they removed.
type difference struct {
	ctx  context.Context // ends the work
	from int             // the first of the layers
	base *Stack
	out  *Tree
	// again has the files of the base with a name from the layers: they come with all of their names, so that these
	// stay hard links of one file.
	again map[*node]bool
}

// make makes the difference of a tree.
func (d *difference) make(t *Tree) (err error) {
	d.findLinks(t.root)
	d.out.root, _, err = d.dir(".", t.root, true)
	return err
}

// findLinks finds the files of the base with new names in a directory and below.
func (d *difference) findLinks(dir *node) {
	for _, child := range dir.names {
		switch {
		case child.isDir():
			d.findLinks(child.node)
		case child.layer >= d.from && child.since < d.from:
			d.again[child.node] = true
		}
	}
}

// dir returns the difference of a directory, and whether there is any below it; named is whether the layers have the
// directory itself.
func (d *difference) dir(clean string, dir *node, named bool) (out *node, differs bool, err error) {
	out = newDir()
	out.become(dir)
	for base, child := range dir.names {
		if err := d.ctx.Err(); err != nil {
			return nil, false, err
		}
		n, keep := child.node, child.layer >= d.from
		if child.isDir() {
			var more bool
			if n, more, err = d.dir(path.Join(clean, base), child.node, keep); err != nil {
				return nil, false, err
			}
			keep = keep || more
		} else if d.again[n] {
			keep = true
		}
		if !keep {
			continue
		}
		if err := d.add(out, base, n); err != nil {
			return nil, false, err
		}
	}
	if named || dir.lost >= d.from {
		err = d.hide(clean, dir, out)
	}
	return out, len(out.names) > 0, err
}

// hide adds whiteouts for the names of a directory of the base that are gone.
func (d *difference) hide(clean string, dir, out *node) error {
	in, ok, err := d.base.find(clean)
	if err != nil || !ok || !in.mode.IsDir() {
		return err
	}
	return d.base.children(in, func(base string, _ inode) error {
		if _, stays := dir.names[base]; stays {
			return d.ctx.Err()
		}
		return errors.Join(d.add(out, base, newWhiteout()), d.ctx.Err())
	})
}

func (d *difference) add(dir *node, base string, n *node) error {
	dir.names[base] = dentry{node: n}
	return d.out.memory.add(base, n)
}
