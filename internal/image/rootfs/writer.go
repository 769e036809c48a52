package rootfs

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// futureDate is the date of files that must look new for ever, see the recipe's future_dated: late
// enough, and still representable everywhere.
var futureDate = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// Result is a root filesystem as files: the OCI layer and the EROFS.
type Result struct {
	Layer Blob   // the last layer; zero when the layers are no files of this package
	EROFS string // path
	Files int64  // number of names in it
	// Collected is the content of [Spec.Collect].
	Collected string
}

// Spec configures the writing of a root filesystem.
type Spec struct {
	Dir         string // for the results and temporary files
	Date        time.Time
	FutureDated []string // directories whose files look new for ever
	Limits      Limits
	// Collect is the path of a file whose content becomes part of the result, if it exists and has
	// CollectMax bytes at most; "" is none.
	Collect    string
	CollectMax int64
	// Progress, unless nil, is called with the number of entries so far, now and then.
	Progress func(entries int64)
	// Tree is an empty tree for the files; nil is a tree whose memory is not counted.
	Tree *Tree
}

// Write reads a root filesystem as a tar stream and writes it as a layer and as an EROFS. It trusts
// nothing in the stream: an entry that would leave the root, goes through something that is not a
// directory or comes twice is an error with code Invalid, and a stream beyond the limits is
// TooLarge.
func Write(ctx context.Context, r io.Reader, spec Spec) (Result, error) {
	b, err := NewWriter(spec, cmp.Or(spec.Tree, newTree()))
	if err != nil {
		return Result{}, err
	}
	defer b.Close()
	var n int64
	var collected strings.Builder
	b.layers.visit = func(hdr *tar.Header) (io.Writer, error) {
		if n++; n%1000 == 0 && spec.Progress != nil {
			spec.Progress(n)
		}
		if err := b.copyHeader(hdr); err != nil {
			return nil, err
		}
		if "/"+hdr.Name != spec.Collect || hdr.Typeflag != tar.TypeReg {
			return b.tar, nil
		}
		if hdr.Size > spec.CollectMax {
			return nil, sandbox.Errorf(sandbox.Invalid, "the image's %s has %d bytes, more than %d", spec.Collect, hdr.Size, spec.CollectMax)
		}
		return io.MultiWriter(b.tar, &collected), nil
	}
	b.layers.normalise = spec.normalise
	if err := b.layers.read(ctx, r); err != nil {
		return Result{}, err
	}
	layer, err := b.FinishLayer()
	if err != nil {
		return Result{}, err
	}
	root, err := b.Finish(ctx, layer)
	root.Collected = collected.String()
	return root, err
}

// Writer makes a root filesystem of a tree and another layer, and the OCI layer of the latter.
type Writer struct {
	spec   Spec
	layers layerReader
	blob   *layerWriter
	tar    *tar.Writer // into blob
}

// NewWriter returns a writer whose layer lies over a tree.
func NewWriter(spec Spec, t *Tree) (*Writer, error) {
	sp, err := newSpool(filepath.Join(spec.Dir, "files"))
	if err != nil {
		return nil, err
	}
	blob, err := newLayerWriter(filepath.Join(spec.Dir, "layer.tar.zst"))
	if err != nil {
		sp.file.Close()
		return nil, err
	}
	return &Writer{
		spec: spec, blob: blob, tar: tar.NewWriter(blob),
		layers: layerReader{tree: t, spool: sp, limits: spec.Limits},
	}, nil
}

// Close removes the temporary files.
func (b *Writer) Close() {
	b.layers.spool.file.Close()
	b.blob.file.Close()
}

// ReadLayer applies a layer of another tool or of a sandbox to the tree, and reads it to its end.
// It skips the files with the clean names without, and their whiteouts. Errors: as of [Write].
func (b *Writer) ReadLayer(ctx context.Context, r io.Reader, without []string) error {
	b.layers.normalise, b.layers.visit, b.layers.without = normaliseHeader, b.copyCommitted, without
	return b.layers.read(ctx, r)
}

// copyHeader writes an entry's header to the layer.
func (b *Writer) copyHeader(hdr *tar.Header) error {
	if err := b.tar.WriteHeader(hdr); err != nil {
		return fmt.Errorf("write layer entry %q: %w", hdr.Name, err)
	}
	return nil
}

// copyCommitted writes an entry to the layer, with whiteouts in the format of OCI.
func (b *Writer) copyCommitted(hdr *tar.Header) (io.Writer, error) {
	if isWhiteoutDevice(hdr) {
		dir, base := path.Split(hdr.Name)
		return nil, b.copyHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dir + whiteoutPrefix + base, Format: tar.FormatPAX})
	}
	opaque := hdr.Typeflag == tar.TypeDir && isOpaque(hdr)
	plain := *hdr
	plain.PAXRecords = map[string]string{}
	for k, v := range hdr.PAXRecords {
		if !slices.Contains(opaqueXattrs, k) {
			plain.PAXRecords[k] = v
		}
	}
	if err := b.copyHeader(&plain); err != nil || !opaque {
		return b.tar, err
	}
	return nil, b.copyHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(hdr.Name, opaqueMarker), Format: tar.FormatPAX})
}

// FinishLayer completes the layer.
func (b *Writer) FinishLayer() (Blob, error) {
	if err := errors.Join(b.layers.spool.finish(), b.tar.Close()); err != nil {
		return Blob{}, fmt.Errorf("write layer: %w", err)
	}
	return b.blob.close()
}

// Finish writes the EROFS: of the tree, or of the layer alone if the tree lies over a [Base].
func (b *Writer) Finish(ctx context.Context, layer Blob) (root Result, err error) {
	root = Result{Layer: layer, EROFS: filepath.Join(b.spec.Dir, "root.erofs")}
	t := b.layers.tree
	if t.below == nil {
		root.Files, err = writeEROFS(ctx, root.EROFS, t, b.spec.Date)
		return root, err
	}
	added, err := t.settle(ctx)
	if err != nil {
		return root, err
	}
	root.Files = t.below.Files + added
	if t.below.Keep > 0 && t.below.Keep < len(t.below.Digests) {
		if err := t.merge(ctx); err != nil {
			return root, err
		}
	}
	if _, err := writeEROFS(ctx, root.EROFS, t, b.spec.Date); err != nil {
		return root, err
	}
	return root, t.below.list(root.EROFS)
}

// normalise removes differences between two builds of the same files: formats, names of owners,
// access times, late dates.
func (s Spec) normalise(hdr *tar.Header) {
	normaliseHeader(hdr)
	if hdr.ModTime.After(s.Date) {
		hdr.ModTime = s.Date
	}
	for _, dir := range s.FutureDated {
		if strings.HasPrefix("/"+strings.TrimSuffix(hdr.Name, "/")+"/", dir+"/") {
			hdr.ModTime = futureDate
		}
	}
}

// normaliseHeader reduces a header to the attributes of the file: without the format, the names of
// owners and access times.
func normaliseHeader(hdr *tar.Header) {
	xattrs := map[string]string{}
	for k, v := range hdr.PAXRecords {
		if strings.HasPrefix(k, xattrRecord) {
			xattrs[k] = v
		}
	}
	hdr.PAXRecords = xattrs
	hdr.Format = tar.FormatPAX
	hdr.Uname, hdr.Gname = "", ""
	hdr.AccessTime, hdr.ChangeTime = time.Time{}, time.Time{}
	hdr.ModTime = hdr.ModTime.Truncate(time.Second)
}
