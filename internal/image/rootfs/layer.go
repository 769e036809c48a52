package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// The whiteouts of OCI: how a layer removes files of the layers below.
const (
	whiteoutPrefix = ".wh."
	opaqueMarker   = ".wh..wh..opq"
	xattrRecord    = "SCHILY.xattr."
)

// opaqueXattrs mark a directory that hides the directory below it, as overlay file systems do;
// their whiteouts are character devices 0:0.
var opaqueXattrs = []string{xattrRecord + "trusted.overlay.opaque", xattrRecord + "user.overlay.opaque"}

// layerReader applies tar streams to a tree, one after the other.
type layerReader struct {
	tree   *Tree
	spool  *spool
	limits Limits // of all layers together
	used   *Meter // nil before the first layer
	// normalise, unless nil, changes each header before it is used.
	normalise func(*tar.Header)
	// without are clean names of entries to skip.
	without []string
	// visit, unless nil, is called with each entry before its content is read, and may return a writer
	// that gets a copy of the content.
	visit func(hdr *tar.Header) (io.Writer, error)
}

// read applies a layer to the tree, and reads it to its end. It trusts nothing in the layer: an
// entry that would leave the root, goes through something that is not a directory or comes twice is
// an error with code Invalid; a layer beyond the limits, together with the layers before, is
// TooLarge.
func (l *layerReader) read(ctx context.Context, r io.Reader) error {
	if l.used == nil {
		l.used = &Meter{Limits: l.limits}
	}
	m := l.used
	r = m.Reader(r)
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return layerError(err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue // it describes no file
		}
		if err := m.Entry(hdr.Size); err != nil {
			return err
		}
		if err := l.entry(hdr, tr); err != nil {
			return err
		}
		if err := m.imply(l.tree); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return layerError(err)
	}
	l.tree.layer++
	return nil
}

// layerError makes an error say that the layer is at fault, unless it has another code.
func layerError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) {
		return sandbox.Wrap(sandbox.Invalid, err, "the layer is not a complete tar archive")
	}
	return fmt.Errorf("read layer: %w", err)
}

// entry applies an entry to the tree.
func (l *layerReader) entry(hdr *tar.Header, content io.Reader) error {
	if l.tree.lenient {
		relativeNames(hdr)
	}
	if err := cleanNames(hdr); err != nil {
		return err
	}
	if dir, base := path.Split(path.Clean(hdr.Name)); slices.Contains(l.without, dir+strings.TrimPrefix(base, whiteoutPrefix)) {
		return nil
	}
	if l.normalise != nil {
		l.normalise(hdr)
	}
	if l.visit != nil {
		copied, err := l.visit(hdr)
		if err != nil {
			return err
		}
		if copied != nil {
			content = io.TeeReader(content, copied)
		}
	}
	clean := path.Clean(hdr.Name)
	if done, err := l.whiteout(clean, hdr); done || err != nil {
		return err
	}
	if hdr.Typeflag == tar.TypeLink {
		return l.tree.link(clean, hdr.Linkname)
	}
	n, err := newNode(clean, hdr)
	if err != nil {
		return err
	}
	n.since = l.tree.layer
	if n.mode.IsRegular() {
		if n.content, err = l.spool.add(content); err != nil {
			return layerError(err)
		}
	}
	if err := l.tree.put(clean, n); err != nil {
		return err
	}
	if n.mode.IsDir() && isOpaque(hdr) {
		return l.tree.hideAll(clean)
	}
	return nil
}

// whiteout reports whether an entry is a whiteout, and applies it.
func (l *layerReader) whiteout(clean string, hdr *tar.Header) (done bool, err error) {
	dir, base := path.Split(clean)
	dir = path.Clean(dir)
	switch gone, marked := strings.CutPrefix(base, whiteoutPrefix); {
	case base == opaqueMarker:
		return true, l.tree.hideAll(dir)
	case strings.HasPrefix(base, whiteoutPrefix+whiteoutPrefix):
		return true, nil // AUFS's own metadata
	case marked && (gone == "" || gone == "." || gone == ".."):
		return true, sandbox.Errorf(sandbox.Invalid, "the layer has %.300q, which removes nothing that can be", clean)
	case marked:
		return true, l.tree.hide(path.Join(dir, gone))
	case isWhiteoutDevice(hdr):
		return true, l.tree.hide(clean)
	}
	return false, nil
}

// isWhiteoutDevice reports whether an entry is a whiteout of overlay file systems.
func isWhiteoutDevice(hdr *tar.Header) bool {
	return hdr.Typeflag == tar.TypeChar && hdr.Devmajor == 0 && hdr.Devminor == 0
}

// isOpaque reports whether a directory hides the entries of lower layers.
func isOpaque(hdr *tar.Header) bool {
	for _, x := range opaqueXattrs {
		if hdr.PAXRecords[x] == "y" {
			return true
		}
	}
	return false
}

// newNode returns the node of an entry without its contents and extended attributes, see the
// package comment.
func newNode(clean string, hdr *tar.Header) (*node, error) {
	if hdr.Uid < 0 || hdr.Uid > math.MaxUint32 || hdr.Gid < 0 || hdr.Gid > math.MaxUint32 {
		return nil, sandbox.Errorf(sandbox.Invalid, "the root filesystem's %.300q belongs to the unacceptable user %d or group %d", clean, hdr.Uid, hdr.Gid)
	}
	n := &node{mode: hdr.FileInfo().Mode(), uid: uint32(hdr.Uid), gid: uint32(hdr.Gid), mtime: hdr.ModTime}
	if n.mtime.Before(time.Unix(0, 0)) {
		n.mtime = time.Unix(0, 0)
	}
	perm := n.mode &^ fs.ModeType
	switch hdr.Typeflag {
	case tar.TypeReg:
		n.mode = perm
	case tar.TypeDir:
		n.mode, n.names = perm|fs.ModeDir, map[string]dentry{}
	case tar.TypeSymlink:
		if hdr.Linkname == "" || len(hdr.Linkname) >= pathMax || strings.ContainsRune(hdr.Linkname, 0) {
			return nil, sandbox.Errorf(sandbox.Invalid, "the symbolic link %.300q has an unacceptable target", clean)
		}
		n.mode, n.target = perm|fs.ModeSymlink, hdr.Linkname
	case tar.TypeChar:
		n.mode, n.rdev = perm|fs.ModeDevice|fs.ModeCharDevice, deviceNumber(hdr)
	case tar.TypeBlock:
		n.mode, n.rdev = perm|fs.ModeDevice, deviceNumber(hdr)
	case tar.TypeFifo:
		n.mode = perm | fs.ModeNamedPipe
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "the root filesystem has %.300q of the unknown type %q", clean, hdr.Typeflag)
	}
	return n, nil
}

// deviceNumber encodes a device number as Linux stores it on disk.
func deviceNumber(hdr *tar.Header) uint32 {
	major, minor := uint32(hdr.Devmajor), uint32(hdr.Devminor)
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

// The limits of Linux on names.
const (
	nameMax = 255
	pathMax = 4096
)

// relativeNames removes the leading slash of names, which some tools write: the root is the
// image's.
func relativeNames(hdr *tar.Header) {
	if path.IsAbs(hdr.Name) {
		hdr.Name = "." + hdr.Name
	}
	if hdr.Typeflag == tar.TypeLink && path.IsAbs(hdr.Linkname) {
		hdr.Linkname = "." + hdr.Linkname
	}
}

// cleanNames makes an entry's names relative to the root, a directory's with a slash at its end,
// and gives files a single type.
func cleanNames(hdr *tar.Header) (err error) {
	if hdr.Typeflag == tar.TypeGNUSparse || hdr.Typeflag == tar.TypeCont {
		hdr.Typeflag = tar.TypeReg // other types of regular files
	}
	if hdr.Name, err = cleanName(hdr.Name); err != nil {
		return err
	}
	if hdr.Typeflag == tar.TypeLink {
		if hdr.Linkname, err = cleanName(hdr.Linkname); err != nil {
			return err
		}
	}
	if hdr.Typeflag == tar.TypeDir && hdr.Name != "." {
		hdr.Name += "/"
	}
	return nil
}

// cleanName returns a tar entry's name relative to the root, "." for the root itself. It refuses
// names that are absolute, lead out of the root or are invalid on Linux.
func cleanName(name string) (string, error) {
	clean := path.Clean(name)
	hostile := name == "" || path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") ||
		strings.ContainsRune(name, 0) || len(clean) > pathMax
	for part := range strings.SplitSeq(name, "/") {
		hostile = hostile || len(part) > nameMax || part == ".."
	}
	if hostile {
		return "", sandbox.Errorf(sandbox.Invalid, "the root filesystem has an entry with the unacceptable name %.300q", name)
	}
	return clean, nil
}
