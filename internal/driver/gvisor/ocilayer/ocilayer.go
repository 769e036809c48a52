// Package ocilayer converts the upper layer of an overlay file system to a layer of an OCI image:
// both are tars, but mark removed files differently.
package ocilayer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Names with a meaning in a layer.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

const (
	xattrs        = "SCHILY.xattr."
	overlayXattrs = xattrs + "trusted.overlay."
	opaqueXattr   = overlayXattrs + "opaque"
	aclXattrs     = xattrs + "system.posix_acl_" // binary, and no two programs write them alike
)

const (
	// maxWhiteouts bounds the inodes that are remembered: an overlay has one inode for all its
	// whiteouts.
	maxWhiteouts = 1024
	// maxRetained bounds the bytes of the files that are remembered because their first name is omitted. Each counts
	// retainedOverhead besides its content, names and attributes. Files with such names are markers, which are empty.
	maxRetained      = 1 << 20
	retainedOverhead = 512
)

// FromOverlay copies the tar of an overlay's upper layer from r to w as a layer, without the
// directories of skip, which are paths from the root. Whiteouts are character devices 0:0 and hard
// links to them; opaque directories have the overlay's extended attribute. Other attributes,
// owners, times and hard links are copied; access control lists, and names that have a
// meaning in a layer, are omitted. A file that has another name as well keeps that.
//
// r may be hostile: names are passed on unchanged except for "./", and memory use does not grow
// with r. FromOverlay reads to the end of the archive. Errors: also [driver.ErrOmitted], when w has the rest, for files with
// another name whose first name in r is omitted, if they are large together.
func FromOverlay(w io.Writer, r io.Reader, skip []string) error {
	return convert(&converter{in: tar.NewReader(r), out: tar.NewWriter(w), skip: skip, whiteouts: map[string]bool{}, retained: map[string]*retainedFile{}})
}

// NamesFromOverlay is FromOverlay without the contents of files, see [driver.LayerSize].
func NamesFromOverlay(w io.Writer, r io.Reader, skip []string) error {
	return convert(&converter{in: tar.NewReader(r), out: tar.NewWriter(w), skip: skip, whiteouts: map[string]bool{}, retained: map[string]*retainedFile{}, names: true})
}

func convert(c *converter) error {
	for {
		h, err := c.in.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(c.out.Close(), c.omitted)
		}
		if err != nil {
			return err
		}
		if err := c.entry(h); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

type converter struct {
	in        *tar.Reader
	out       *tar.Writer
	skip      []string
	whiteouts map[string]bool
	names     bool // without contents
	// retained are files whose first name is omitted, by that name; retainedSize is their size, at most maxRetained.
	retained     map[string]*retainedFile
	retainedSize int64
	omitted      error // about the first name of a file that could not be retained
}

// retainedFile is a file whose first name is omitted.
type retainedFile struct {
	header  *tar.Header
	content []byte
	name    string // that it has in the layer; "" for none so far
}

// reserved reports whether a path, or a part of it, has a meaning in a layer.
func reserved(name string) bool {
	return strings.HasPrefix(name, whiteout) || strings.Contains(name, "/"+whiteout)
}

func (c *converter) entry(h *tar.Header) error {
	name := path.Clean(h.Name)
	if name == "." || c.skipped(name) {
		return nil
	}
	dir, base := path.Split(name)
	target := path.Clean(h.Linkname)
	white := h.Typeflag == tar.TypeLink && c.whiteouts[target]
	if h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 {
		if len(c.whiteouts) == maxWhiteouts {
			return errors.New("too many whiteouts")
		}
		c.whiteouts[name], white = true, true
	}
	switch {
	case reserved(name) && white:
		return nil
	case reserved(name):
		return c.retain(name, h) // and nothing below: a reader of the layer has no directory for it
	case white:
		return c.empty(dir + whiteout + base)
	case h.Typeflag == tar.TypeLink && c.skipped(target):
		return nil
	case h.Typeflag == tar.TypeLink && reserved(target):
		return c.link(name, target, h)
	}
	return c.write(name, target, h, c.in)
}

// retain remembers a file whose name is omitted, unless it exceeds maxRetained.
func (c *converter) retain(name string, h *tar.Header) error {
	if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeLink {
		return nil // the file of a link has its first name elsewhere
	}
	size := retainedOverhead + h.Size + int64(len(name)+len(h.Linkname))
	for key, value := range h.PAXRecords {
		size += int64(len(key) + len(value))
	}
	if size > maxRetained-c.retainedSize {
		return nil
	}
	content, err := io.ReadAll(c.in)
	if err != nil {
		return err
	}
	c.retainedSize += size
	c.retained[name] = &retainedFile{header: h, content: content}
	return nil
}

// link writes another name of a file whose first name, target, is omitted: its first name in the layer, or a link to that.
func (c *converter) link(name, target string, h *tar.Header) error {
	f := c.retained[target]
	if f == nil {
		if c.omitted == nil {
			c.omitted = sandbox.Wrap(sandbox.Unsupported, driver.ErrOmitted,
				"the file %q is also linked as %q, and files with such names are not kept: remove or rename that link", name, target)
		}
		return nil
	}
	if f.name != "" {
		return c.write(name, f.name, h, nil)
	}
	f.name = name
	return c.write(name, "", f.header, bytes.NewReader(f.content))
}

// write writes a file under a name; target is another name if the file is a hard link.
func (c *converter) write(name, target string, h *tar.Header, content io.Reader) error {
	out := &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid,
		ModTime: h.ModTime, Devmajor: h.Devmajor, Devminor: h.Devminor, Format: tar.FormatPAX,
	}
	switch h.Typeflag {
	case tar.TypeLink:
		out.Linkname = target
	case tar.TypeDir:
		out.Name += "/"
	}
	for key, value := range h.PAXRecords {
		if strings.HasPrefix(key, xattrs) && !strings.HasPrefix(key, overlayXattrs) && !strings.HasPrefix(key, aclXattrs) {
			if out.PAXRecords == nil {
				out.PAXRecords = map[string]string{}
			}
			out.PAXRecords[key] = value
		}
	}
	if c.names && h.Typeflag == tar.TypeReg {
		if out.PAXRecords == nil {
			out.PAXRecords = map[string]string{}
		}
		out.PAXRecords[driver.LayerSize], out.Size = strconv.FormatInt(h.Size, 10), 0
	}
	if err := c.out.WriteHeader(out); err != nil {
		return err
	}
	if h.PAXRecords[opaqueXattr] == "y" {
		return c.empty(name + "/" + opaque)
	}
	if h.Typeflag != tar.TypeReg || c.names {
		return nil
	}
	_, err := io.Copy(c.out, content)
	return err
}

// empty writes an empty file whose name is its meaning.
func (c *converter) empty(name string) error {
	return c.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Format: tar.FormatPAX})
}

// skipped reports whether a path is in a skipped directory.
func (c *converter) skipped(name string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	return slices.Contains(c.skip, first)
}
