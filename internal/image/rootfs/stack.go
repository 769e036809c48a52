package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/modbox/modbox/internal/image/stack"
)

// Stack is a root filesystem in its files, see package stack: of a layer and all below it. It reads
// them as an overlay file system does, which has no opaque directories: a character device 0:0 hides
// the file of its name in the layers below.
type Stack struct {
	disks []*disk // the topmost first
	files []*os.File
}

// OpenStack opens a root filesystem. It stays valid when files are removed.
func OpenStack(erofs string) (*Stack, error) {
	files, err := stack.Open(erofs)
	if err != nil {
		return nil, err
	}
	s := &Stack{files: files}
	for _, f := range files {
		d, err := openDisk(f)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("read root filesystem: %w", err)
		}
		s.disks = append(s.disks, d)
	}
	return s, nil
}

// Close closes the files.
func (s *Stack) Close() { stack.Close(s.files) }

// inode is a file of a stack.
type inode struct {
	diskInode
	disk *disk
	// below are the directories of lower layers whose entries a directory also has, the topmost first.
	below []inode
	// opaque is set for a directory over something else, such as a whiteout: it has no entries of further layers.
	opaque bool
}

// content returns the content of a file, or the target of a link.
func (in inode) content() *io.SectionReader { return in.disk.content(in.diskInode) }

// place identifies a file: two names with the same place are hard links.
type place struct {
	disk   *disk
	number uint64
}

func (in inode) place() place { return place{in.disk, in.number} }

// isWhiteout reports whether a file hides files of the layers below.
func (in inode) isWhiteout() bool { return in.mode&fs.ModeCharDevice != 0 && in.rdev == 0 }

// rootDir returns the root.
func (s *Stack) rootDir() (inode, error) {
	e := entry{}
	for _, d := range s.disks {
		e.places = append(e.places, place{d, d.root})
	}
	in, ok, err := e.inode()
	if err == nil && (!ok || !in.mode.IsDir()) {
		err = errors.New("the root is not a directory")
	}
	return in, err
}

// entry is a name in a directory.
type entry struct {
	name   string
	places []place // the files of that name in the layers of the directory, the topmost first
}

// inode returns the file of an entry; false if it is hidden.
func (e entry) inode() (in inode, ok bool, err error) {
	for i, p := range e.places {
		one, err := p.disk.inode(p.number)
		if err != nil {
			return inode{}, false, err
		}
		next := inode{diskInode: one, disk: p.disk}
		switch {
		case next.isWhiteout():
			in.opaque = true
			return in, i > 0, nil
		case i == 0:
			in = next
		case next.mode.IsDir():
			in.below = append(in.below, next)
		}
		if !next.mode.IsDir() {
			in.opaque = true
			break // of what is below a file, nothing is visible
		}
	}
	return in, true, nil
}

// entries calls do for each name in a directory, sorted, including hidden names.
func (s *Stack) entries(dir inode, do func(entry) error) error {
	if len(dir.below) == 0 {
		return dir.disk.entries(dir.diskInode, func(e dirent) error {
			return do(entry{e.name, []place{{dir.disk, e.number}}})
		})
	}
	// The directories of the layers are read side by side: one may have millions of names.
	var streams []*stream
	for _, layer := range dir.layers() {
		next, stop := iter.Pull2(layer.disk.sorted(layer.diskInode))
		defer stop()
		s := &stream{disk: layer.disk, next: next}
		if err := s.advance(); err != nil {
			return err
		}
		streams = append(streams, s)
	}
	for {
		var first *stream
		for _, s := range streams {
			if s.more && (first == nil || s.at.name < first.at.name) {
				first = s
			}
		}
		if first == nil {
			return nil
		}
		e := entry{name: first.at.name}
		for _, s := range streams {
			if !s.more || s.at.name != e.name {
				continue
			}
			e.places = append(e.places, place{s.disk, s.at.number})
			if err := s.advance(); err != nil {
				return err
			}
		}
		if err := do(e); err != nil {
			return err
		}
	}
}

// layers returns a directory in all layers that have it, the topmost first.
func (in inode) layers() []inode { return append([]inode{in}, in.below...) }

// stream is a directory of one layer while it is read.
type stream struct {
	disk *disk
	next func() (dirent, error, bool)
	at   dirent
	more bool // there is an entry at
}

// advance goes to the next entry.
func (s *stream) advance() (err error) {
	s.at, err, s.more = s.next()
	return err
}

// children calls do for each visible file in a directory, sorted by name.
func (s *Stack) children(dir inode, do func(name string, in inode) error) error {
	return s.entries(dir, func(e entry) error {
		in, ok, err := e.inode()
		if err != nil || !ok {
			return err
		}
		return do(e.name, in)
	})
}

// count returns the number of names in a directory and below.
func (s *Stack) count(ctx context.Context, dir inode) (n int64, err error) {
	err = s.children(dir, func(_ string, in inode) error {
		n++
		if !in.mode.IsDir() {
			return ctx.Err()
		}
		more, err := s.count(ctx, in)
		n += more
		return err
	})
	return n, err
}

// node returns the node of a file with everything in it. seen has the files found so far.
func (s *Stack) node(in inode, seen map[place]*node, memory *treeMemory) (*node, error) {
	if n := seen[in.place()]; n != nil && !n.mode.IsDir() {
		return n, nil
	} else if n != nil {
		return nil, fmt.Errorf("directory %d is in two places", in.number)
	}
	n, err := s.plain(in)
	if err != nil {
		return nil, err
	}
	if in.links > 1 || in.mode.IsDir() {
		seen[in.place()] = n
	}
	if !in.mode.IsDir() {
		return n, nil
	}
	return n, s.children(in, func(name string, child inode) error {
		node, err := s.node(child, seen, memory)
		if err != nil {
			return err
		}
		n.names[name] = dentry{node: node}
		return memory.add(name, node)
	})
}

// plain returns the node of a file, without the entries of a directory.
func (s *Stack) plain(in inode) (*node, error) {
	n := &node{mode: in.mode, uid: in.uid, gid: in.gid, mtime: in.mtime, rdev: in.rdev}
	switch {
	case in.mode.IsDir():
		n.names = map[string]dentry{}
	case in.mode&fs.ModeSymlink != 0:
		target, err := io.ReadAll(in.content())
		n.target = string(target)
		return n, err
	case in.mode.IsRegular():
		n.content = in.content()
	}
	return n, nil
}

// find returns the file with a clean relative name, without following links; false for none.
func (s *Stack) find(clean string) (at inode, ok bool, err error) {
	if at, err = s.rootDir(); err != nil {
		return at, false, err
	}
	for _, part := range split(clean) {
		if !at.mode.IsDir() {
			return at, false, nil
		}
		if at, ok, err = s.child(at, part); err != nil || !ok {
			return at, false, err
		}
	}
	return at, true, nil
}

// errFound ends the reading of a directory.
var errFound = errors.New("found")

// child returns the file with a name in a directory; false for none.
func (s *Stack) child(dir inode, name string) (in inode, ok bool, err error) {
	var e entry
	for _, layer := range dir.layers() {
		number, found, err := layer.disk.lookup(layer.diskInode, name)
		if err != nil {
			return in, false, err
		}
		if found {
			e.places = append(e.places, place{layer.disk, number})
		}
	}
	if len(e.places) == 0 {
		return in, false, nil
	}
	return e.inode()
}
