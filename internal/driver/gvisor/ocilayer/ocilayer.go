// Package ocilayer converts the upper layer of an overlay file system to a layer of an OCI image:
// both are tars, but mark removed files differently.
package ocilayer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/driver"
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

// maxWhiteouts bounds the inodes that are remembered: an overlay has one inode for all its
// whiteouts.
const maxWhiteouts = 1024

// FromOverlay copies the tar of an overlay's upper layer from r to w as a layer, without the
// directories of skip, which are paths from the root. Whiteouts are character devices 0:0 and hard
// links to them; opaque directories have the overlay's extended attribute. Other attributes,
// owners, times and hard links are copied; access control lists, and files whose names have a
// meaning in a layer, are omitted.
//
// r may be hostile: names are passed on unchanged except for "./", and memory use does not grow
// with r. FromOverlay reads to the end of the archive.
func FromOverlay(w io.Writer, r io.Reader, skip []string) error {
	return convert(&converter{in: tar.NewReader(r), out: tar.NewWriter(w), skip: skip, whiteouts: map[string]bool{}})
}

// NamesFromOverlay is FromOverlay without the contents of files, see [driver.LayerSize].
func NamesFromOverlay(w io.Writer, r io.Reader, skip []string) error {
	return convert(&converter{in: tar.NewReader(r), out: tar.NewWriter(w), skip: skip, whiteouts: map[string]bool{}, names: true})
}

func convert(c *converter) error {
	for {
		h, err := c.in.Next()
		if errors.Is(err, io.EOF) {
			return c.out.Close()
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
}

func (c *converter) entry(h *tar.Header) error {
	name := path.Clean(h.Name)
	if name == "." || c.skipped(name) {
		return nil
	}
	dir, base := path.Split(name)
	target := path.Clean(h.Linkname)
	switch {
	case strings.HasPrefix(name, whiteout), strings.Contains(name, "/"+whiteout):
		return nil // with all that is below: a reader of the layer has no directory for it
	case h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0:
		if len(c.whiteouts) == maxWhiteouts {
			return errors.New("too many whiteouts")
		}
		c.whiteouts[name] = true
		return c.empty(dir + whiteout + base)
	case h.Typeflag == tar.TypeLink && c.whiteouts[target]:
		return c.empty(dir + whiteout + base)
	case h.Typeflag == tar.TypeLink && c.skipped(target):
		return nil
	}
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
	_, err := io.Copy(c.out, c.in)
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
