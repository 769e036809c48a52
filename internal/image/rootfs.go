package image

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/modbox/modbox/internal/sandbox"
)

// packagesPath is where an image lists what is installed in it.
const packagesPath = "/usr/share/modbox/packages.tsv"

// packagesMax bounds that list.
const packagesMax = 4 << 20

// futureDate is given to files that must look new for ever, see the recipe's
// future_dated: late enough, and still representable everywhere.
var futureDate = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// rootfs is a root filesystem as files: the OCI layer and the EROFS.
type rootfs struct {
	layer    blob
	erofs    string // path
	files    int64  // names in it
	packages []Package
	room     Room // nil for as much as there is
	// mark, when the EROFS is a name of another image's, is the UUID it would have.
	mark []byte
	// volatile: it can be made again should the host lose it in a power failure.
	volatile bool
}

// blob is a file that is to become a blob of the OCI layout.
type blob struct {
	path   string
	digest v1.Hash // of the file
	diffID v1.Hash // of what it holds uncompressed
	size   int64
}

// rootfsSpec says how to make one.
type rootfsSpec struct {
	dir         string // for the results and temporary files
	date        time.Time
	futureDated []string
	limits      limits
	progress    func(Event)
	tree        *tree // for the files, nil for one whose memory is not counted
}

// writeRootfs reads a root filesystem as a tar stream and writes it as a layer
// and as an EROFS. It takes nothing on trust, as [layerReader.read] says.
func writeRootfs(ctx context.Context, r io.Reader, spec rootfsSpec) (*rootfs, error) {
	b, err := newRootfsWriter(spec, cmp.Or(spec.tree, newTree()))
	if err != nil {
		return nil, err
	}
	defer b.close()
	var n int64
	var list strings.Builder
	b.layers.visit = func(hdr *tar.Header) (io.Writer, error) {
		if n++; n%1000 == 0 {
			spec.progress(Event{Phase: PhaseWriting, Done: n, Message: "files"})
		}
		if err := b.copyHeader(hdr); err != nil {
			return nil, err
		}
		if "/"+hdr.Name != packagesPath || hdr.Typeflag != tar.TypeReg {
			return b.tar, nil
		}
		if hdr.Size > packagesMax {
			return nil, sandbox.Errorf(sandbox.Invalid, "the image's list of packages has %d bytes, more than %d", hdr.Size, packagesMax)
		}
		return io.MultiWriter(b.tar, &list), nil
	}
	b.layers.normalise = spec.normalise
	if err := b.layers.read(ctx, r); err != nil {
		return nil, err
	}
	layer, err := b.finishLayer()
	if err != nil {
		return nil, err
	}
	root, err := b.finish(ctx, layer)
	if err != nil {
		return nil, err
	}
	root.packages = parsePackages(list.String())
	return root, nil
}

// rootfsWriter makes a root filesystem and the OCI layer that it got last.
type rootfsWriter struct {
	spec   rootfsSpec
	layers layerReader
	blob   *layerWriter
	tar    *tar.Writer // into blob
}

func newRootfsWriter(spec rootfsSpec, t *tree) (*rootfsWriter, error) {
	sp, err := newSpool(filepath.Join(spec.dir, "files"))
	if err != nil {
		return nil, err
	}
	blob, err := newLayerWriter(filepath.Join(spec.dir, "layer.tar.zst"))
	if err != nil {
		sp.file.Close()
		return nil, err
	}
	return &rootfsWriter{
		spec: spec, blob: blob, tar: tar.NewWriter(blob),
		layers: layerReader{tree: t, spool: sp, limits: spec.limits},
	}, nil
}

// close ends the use of the temporary files.
func (b *rootfsWriter) close() {
	b.layers.spool.file.Close()
	b.blob.file.Close()
}

// copyHeader writes an entry's header to the layer.
func (b *rootfsWriter) copyHeader(hdr *tar.Header) error {
	if err := b.tar.WriteHeader(hdr); err != nil {
		return fmt.Errorf("write layer entry %q: %w", hdr.Name, err)
	}
	return nil
}

// finishLayer completes the layer.
func (b *rootfsWriter) finishLayer() (blob, error) {
	if err := errors.Join(b.layers.spool.finish(), b.tar.Close()); err != nil {
		return blob{}, fmt.Errorf("write layer: %w", err)
	}
	return b.blob.close()
}

// finish writes the EROFS.
func (b *rootfsWriter) finish(ctx context.Context, layer blob) (*rootfs, error) {
	root := &rootfs{layer: layer, erofs: filepath.Join(b.spec.dir, "root.erofs")}
	var err error
	root.files, err = writeEROFS(ctx, root.erofs, b.layers.tree, b.spec.date)
	return root, err
}

// normalise removes what differs between two builds of the same: formats, names
// of owners, access times, late dates.
func (s rootfsSpec) normalise(hdr *tar.Header) {
	normaliseHeader(hdr)
	if hdr.ModTime.After(s.date) {
		hdr.ModTime = s.date
	}
	for _, dir := range s.futureDated {
		if strings.HasPrefix("/"+strings.TrimSuffix(hdr.Name, "/")+"/", dir+"/") {
			hdr.ModTime = futureDate
		}
	}
}

// normaliseHeader keeps of a header what belongs to the file: not how it was
// written, not the names of owners, not when it was looked at.
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

// layerWriter writes a compressed layer and hashes both its forms.
type layerWriter struct {
	file   *os.File
	sum    hash.Hash // of the file
	zw     *zstd.Encoder
	diff   hash.Hash // of the tar
	length counter
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func newLayerWriter(name string) (*layerWriter, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	l := &layerWriter{file: f, sum: sha256.New(), diff: sha256.New()}
	l.zw, err = zstd.NewWriter(io.MultiWriter(f, l.sum, &l.length), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return l, nil
}

func (l *layerWriter) Write(p []byte) (int, error) {
	if _, err := l.diff.Write(p); err != nil {
		return 0, err
	}
	return l.zw.Write(p)
}

func (l *layerWriter) close() (blob, error) {
	if err := errors.Join(l.zw.Close(), l.file.Close()); err != nil {
		return blob{}, fmt.Errorf("write layer: %w", err)
	}
	return blob{path: l.file.Name(), digest: sha256Hash(l.sum), diffID: sha256Hash(l.diff), size: int64(l.length)}, nil
}

func sha256Hash(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", h.Sum(nil))}
}
