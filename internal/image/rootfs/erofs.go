package rootfs

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/erofs/go-erofs"
	"github.com/modbox/modbox/internal/sparse"
)

// writeEROFS writes a tree as an EROFS that gVisor can boot from, and returns the number of names
// in it. The same tree gives the same bytes: everything is sorted by name, and the date is the date
// of the image.
func writeEROFS(ctx context.Context, file string, t *Tree, date time.Time) (names int64, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, fmt.Errorf("write root filesystem: %w", err)
	}
	defer f.Close()
	src := &treeFS{ctx: ctx, root: t.root, names: map[*node][]string{}}
	paths := src.count(0, t.root)
	src.collect(".", t.root)
	need := src.files*writeBytes + 2*paths
	if err := t.memory.take(ctx, need); err != nil {
		return 0, fmt.Errorf("write root filesystem: %w", err)
	}
	defer t.memory.give(need)
	out := sparse.NewWriter(f)
	w := erofs.Create(out, erofs.WithBuildTime(uint64(date.Unix()), 0))
	if err := w.CopyFrom(src); err != nil {
		return 0, fmt.Errorf("write root filesystem: %w", err)
	}
	if err := w.Close(); err != nil {
		return 0, fmt.Errorf("write root filesystem: %w", err)
	}
	if err := out.Finish(); err != nil {
		return 0, fmt.Errorf("write root filesystem: %w", err)
	}
	if err := finishEROFS(f, src.names); err != nil {
		return 0, fmt.Errorf("write root filesystem: %w", err)
	}
	return src.files, f.Close()
}

// treeFS presents a tree to the EROFS writer. Of a file with several names only the first has
// contents; finishEROFS links the others to it.
type treeFS struct {
	ctx   context.Context // ends reading
	root  *node
	names map[*node][]string // the sorted names of files that have several and are no directories
	files int64              // the number of all names
}

var _ fs.ReadDirFS = (*treeFS)(nil)

// count sets files and the links of each file, and returns the total bytes of all paths in a
// directory whose own path has length bytes.
func (t *treeFS) count(length int64, dir *node) (paths int64) {
	for base, child := range dir.names {
		t.files++
		full := length + int64(len(base)) + 1
		paths += full
		if child.isDir() {
			paths += t.count(full, child.node)
		} else if child.links++; child.links == 2 {
			t.names[child.node] = nil
		}
	}
	return paths
}

// collect sets names.
func (t *treeFS) collect(dir string, n *node) {
	if len(t.names) == 0 {
		return
	}
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		child := n.names[base]
		if child.isDir() {
			t.collect(path.Join(dir, base), child.node)
		} else if names, ok := t.names[child.node]; ok {
			t.names[child.node] = append(names, path.Join(dir, base))
		}
	}
}

func (t *treeFS) at(op, full string) (*node, error) {
	found, ok := (&Tree{root: t.root}).lookup(full)
	if !ok {
		return nil, &fs.PathError{Op: op, Path: full, Err: fs.ErrNotExist}
	}
	return found.node, nil
}

// Stat describes a file.
func (t *treeFS) Stat(full string) (fs.FileInfo, error) {
	n, err := t.at("stat", full)
	if err != nil {
		return nil, err
	}
	return t.info(full, n), nil
}

// ReadDir returns a directory's entries by name.
func (t *treeFS) ReadDir(full string) ([]fs.DirEntry, error) {
	n, err := t.at("readdir", full)
	if err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		entries = append(entries, fs.FileInfoToDirEntry(t.info(path.Join(full, base), n.names[base].node)))
	}
	return entries, nil
}

// ReadLink returns the target of a symbolic link.
func (t *treeFS) ReadLink(full string) (string, error) {
	n, err := t.at("readlink", full)
	if err != nil {
		return "", err
	}
	return n.target, nil
}

// Open returns the contents of a regular file. Every file is opened before the
// first is read, so this costs nothing.
func (t *treeFS) Open(full string) (fs.File, error) {
	n, err := t.at("open", full)
	if err != nil {
		return nil, err
	}
	return &nodeFile{info: t.info(full, n), ctx: t.ctx, content: io.NewSectionReader(n.content, 0, n.content.Size())}, nil
}

// info describes a file by one of its names.
func (t *treeFS) info(full string, n *node) nodeInfo {
	in := nodeInfo{base: path.Base(full), node: n, links: 1}
	switch names := t.names[n]; {
	case n.mode.IsDir():
		in.links = 2
		for _, child := range n.names {
			if child.isDir() {
				in.links++
			}
		}
	case n.content != nil && (len(names) == 0 || names[0] == full):
		in.size = n.content.Size()
		fallthrough
	default:
		in.links = n.links
	}
	return in
}

// nodeInfo describes a file to the EROFS writer.
type nodeInfo struct {
	base  string
	size  int64
	links uint32
	node  *node
}

var _ fs.FileInfo = nodeInfo{}

func (i nodeInfo) Name() string       { return i.base }
func (i nodeInfo) Size() int64        { return i.size }
func (i nodeInfo) Mode() fs.FileMode  { return i.node.mode }
func (i nodeInfo) ModTime() time.Time { return i.node.mtime }
func (i nodeInfo) IsDir() bool        { return i.node.mode.IsDir() }
func (i nodeInfo) Sys() any {
	return &erofs.Stat{
		Rdev: i.node.rdev, UID: i.node.uid, GID: i.node.gid, Nlink: int(i.links),
		Mtime: uint64(i.node.mtime.Unix()), MtimeNs: uint32(i.node.mtime.Nanosecond()),
	}
}

// nodeFile reads a regular file until a context ends.
type nodeFile struct {
	info    nodeInfo
	ctx     context.Context
	content io.Reader
}

func (f *nodeFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *nodeFile) Close() error               { return nil }
func (f *nodeFile) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.content.Read(p)
}
