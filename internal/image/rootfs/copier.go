package rootfs

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// copier puts copies of files into a tree that will lie over another tree.
type copier struct {
	payer       sandbox.WorkspaceID // the workspace that the memory of archives counts for
	under, over *Tree
	owner       fileOwner
	keep        bool // keep the owners of the copied files
	mode        *uint32
	copies      map[*node]*node // by original: a file with two names stays a single file
}

// at returns the node of a resolved name once the copies lie over the rest.
func (p *copier) at(clean string) *node {
	if n, ok := p.over.lookup(clean); ok && !n.implicit {
		return n.node
	}
	if n, ok := p.under.lookup(clean); ok {
		return n.node
	}
	n, _ := p.over.lookup(clean)
	return n.node
}

// mkdir makes a directory and its parents, unless they exist.
func (p *copier) mkdir(clean string) error {
	names := split(clean)
	for i := range names {
		dir := strings.Join(names[:i+1], "/")
		switch n := p.at(dir); {
		case n == nil:
			if err := p.over.put(dir, &node{
				mode: fs.ModeDir | 0o755, uid: p.owner.uid, gid: p.owner.gid, mtime: time.Unix(0, 0), names: map[string]dentry{},
			}); err != nil {
				return err
			}
		case !n.mode.IsDir():
			return sandbox.Errorf(sandbox.Invalid, "/%.300s is not a directory", dir)
		}
	}
	return nil
}

// copied returns a copy of a file, without the entries of a directory.
func (p *copier) copied(n *node, keepOwner bool) *node {
	if done := p.copies[n]; done != nil && !n.mode.IsDir() {
		return done
	}
	c := *n
	c.implicit = false
	if n.mode.IsDir() {
		c.names = map[string]dentry{}
	}
	if !keepOwner {
		c.uid, c.gid = p.owner.uid, p.owner.gid
	}
	if p.mode != nil && n.mode&fs.ModeSymlink == 0 {
		c.mode = n.mode.Type() | modeOf(uint16(*p.mode))
	}
	p.copies[n] = &c
	return &c
}

// follow returns the target of a directory that is a symbolic link in the root filesystem, so that
// the copy does not replace the link: /lib is a link in many images.
func (p *copier) follow(clean string) (string, error) {
	if n := p.at(clean); n == nil || n.mode&fs.ModeSymlink == 0 {
		return clean, nil
	}
	to, n, err := p.under.resolve(clean)
	if err != nil || n == nil || !n.mode.IsDir() {
		return clean, err
	}
	return to, nil
}

// file copies a file of any kind but a directory.
func (p *copier) file(clean string, n *node) error {
	if err := p.mkdir(path.Dir(clean)); err != nil {
		return err
	}
	if there := p.at(clean); there != nil && there.mode.IsDir() {
		return sandbox.Errorf(sandbox.Invalid, "/%.300s is a directory; what is copied there is none", clean)
	}
	return p.over.put(clean, p.copied(n, p.keep))
}

// contents copies the entries of a directory. Existing directories stay as they are.
func (p *copier) contents(clean string, dir *node) error {
	clean, err := p.follow(clean)
	if err != nil {
		return err
	}
	switch there := p.at(clean); {
	case there == nil:
		if err := p.over.put(clean, p.copied(dir, p.keep)); err != nil {
			return err
		}
	case !there.mode.IsDir():
		return sandbox.Errorf(sandbox.Invalid, "/%.300s is not a directory; what is copied there is one", clean)
	}
	for _, base := range slices.Sorted(maps.Keys(dir.names)) {
		child, to := dir.names[base].node, path.Join(clean, base)
		copy := p.file
		if child.mode.IsDir() {
			copy = p.contents
		}
		if err := copy(to, child); err != nil {
			return err
		}
	}
	return nil
}

// unpack puts the files of an archive into a directory, with the archive's owners unless others are
// given, and replaces existing files.
func (p *copier) unpack(clean string, dir *node, owned bool) error {
	if err := p.mkdir(clean); err != nil {
		return err
	}
	for _, base := range slices.Sorted(maps.Keys(dir.names)) {
		child, to := dir.names[base].node, path.Join(clean, base)
		if child.mode.IsDir() {
			var err error
			if to, err = p.follow(to); err != nil {
				return err
			}
		}
		if there := p.at(to); !child.mode.IsDir() || !child.implicit || there != nil && !there.mode.IsDir() {
			if err := p.over.put(to, p.copied(child, !owned)); err != nil {
				return err
			}
		}
		if child.mode.IsDir() {
			if err := p.unpack(to, child, owned); err != nil {
				return err
			}
		}
	}
	return nil
}

// layerOutput writes a tree as a layer.
type layerOutput struct {
	tar   *tar.Writer
	under *Tree
	names map[*node]string // the first names of files
}

// dir writes the entries of a directory.
func (o *layerOutput) dir(ctx context.Context, prefix string, dir *node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, base := range slices.Sorted(maps.Keys(dir.names)) {
		n, name := dir.names[base].node, prefix+base
		if strings.HasPrefix(base, whiteoutPrefix) {
			return sandbox.Errorf(sandbox.Invalid, "a file named %.300q cannot be in an image: layers have such names for what they remove", base)
		}
		if !n.implicit { // otherwise the directory exists below, and only its entries are new
			if err := o.entry(name, n); err != nil {
				return fmt.Errorf("copy to /%s: %w", name, err)
			}
		}
		if n.mode.IsDir() {
			if err := o.dir(ctx, name+"/", n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *layerOutput) entry(name string, n *node) error {
	hdr := &tar.Header{
		Name: name, Mode: tarMode(n.mode), Uid: int(n.uid), Gid: int(n.gid), ModTime: n.mtime, Format: tar.FormatPAX,
	}
	if first := o.names[n]; first != "" {
		hdr.Typeflag, hdr.Linkname = tar.TypeLink, first
		return o.tar.WriteHeader(hdr)
	}
	switch {
	case n.mode.IsDir():
		hdr.Typeflag, hdr.Name = tar.TypeDir, name+"/"
		return o.tar.WriteHeader(hdr)
	case n.mode&fs.ModeSymlink != 0:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, n.target
	case n.mode.IsRegular():
		hdr.Typeflag, hdr.Size = tar.TypeReg, n.content.Size()
	case n.mode&fs.ModeNamedPipe != 0:
		hdr.Typeflag = tar.TypeFifo
	case n.mode&fs.ModeDevice != 0 && n.rdev != 0: // 0 would be a whiteout
		hdr.Typeflag = tar.TypeBlock
		if n.mode&fs.ModeCharDevice != 0 {
			hdr.Typeflag = tar.TypeChar
		}
		hdr.Devmajor, hdr.Devminor = int64(n.rdev>>8&0xfff), int64(n.rdev&0xff|n.rdev>>12&^0xff)
	default:
		return sandbox.Errorf(sandbox.Invalid, "the file is a socket, or a device that cannot be in an image")
	}
	o.names[n] = name
	if err := o.tar.WriteHeader(hdr); err != nil || hdr.Size == 0 {
		return err
	}
	_, err := io.Copy(o.tar, io.NewSectionReader(n.content, 0, n.content.Size()))
	return err
}

// tarMode returns the permission bits for a tar.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for bit, m := range map[int64]fs.FileMode{bitsSetuid: fs.ModeSetuid, bitsSetgid: fs.ModeSetgid, bitsSticky: fs.ModeSticky} {
		if mode&m != 0 {
			bits |= bit
		}
	}
	return bits
}
