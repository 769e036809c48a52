package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
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
	packages []Package
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
	progress    func(Event)
}

// writeRootfs reads a root filesystem as a tar stream and writes it as a layer
// and as an EROFS. It takes nothing on trust: an entry that would leave the root,
// go through something that is not a directory or come twice is an error with
// code Invalid. It reads r to its end.
func writeRootfs(ctx context.Context, r io.Reader, spec rootfsSpec) (*rootfs, error) {
	layer, err := newLayerWriter(path.Join(spec.dir, "layer.tar.zst"))
	if err != nil {
		return nil, err
	}
	defer layer.file.Close()
	tree, err := newTreeWriter(path.Join(spec.dir, "root.erofs"), spec.dir, spec.date)
	if err != nil {
		return nil, err
	}
	defer tree.file.Close()

	var out rootfs
	tr := tar.NewReader(r)
	for n := int64(1); ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read root filesystem: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := spec.normalise(hdr); err != nil {
			return nil, err
		}
		if err := copyEntry(layer, tree, hdr, tr, &out); err != nil {
			return nil, err
		}
		if n%1000 == 0 {
			spec.progress(Event{Phase: PhaseWriting, Done: n, Message: "files"})
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, fmt.Errorf("read root filesystem: %w", err)
	}
	if out.layer, err = layer.close(); err != nil {
		return nil, err
	}
	out.erofs = tree.file.Name()
	return &out, tree.close()
}

// copyEntry writes one entry to the layer and the tree, and keeps the list of packages.
func copyEntry(layer *layerWriter, tree *treeWriter, hdr *tar.Header, content io.Reader, out *rootfs) error {
	if err := layer.tar.WriteHeader(hdr); err != nil {
		return fmt.Errorf("write layer entry %q: %w", hdr.Name, err)
	}
	content = io.TeeReader(content, layer.tar)
	name := "/" + strings.TrimSuffix(hdr.Name, "/")
	if name != packagesPath || hdr.Typeflag != tar.TypeReg {
		return tree.add(hdr, content)
	}
	var list strings.Builder
	if hdr.Size > packagesMax {
		return sandbox.Errorf(sandbox.Invalid, "the image's list of packages has %d bytes, more than %d", hdr.Size, packagesMax)
	}
	if err := tree.add(hdr, io.TeeReader(content, &list)); err != nil {
		return err
	}
	out.packages = parsePackages(list.String())
	return nil
}

// normalise checks the entry's names and removes what differs between two
// builds of the same: formats, names of owners, access times, late dates.
func (s rootfsSpec) normalise(hdr *tar.Header) error {
	clean, err := cleanName(hdr.Name)
	if err != nil {
		return err
	}
	hdr.Name = clean
	if hdr.Typeflag == tar.TypeLink {
		if hdr.Linkname, err = cleanName(hdr.Linkname); err != nil {
			return err
		}
	}
	if hdr.Typeflag == tar.TypeDir && hdr.Name != "." {
		hdr.Name += "/"
	}
	xattrs := map[string]string{}
	for k, v := range hdr.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") {
			xattrs[k] = v
		}
	}
	hdr.PAXRecords = xattrs
	hdr.Format = tar.FormatPAX
	hdr.Uname, hdr.Gname = "", ""
	hdr.AccessTime, hdr.ChangeTime = time.Time{}, time.Time{}
	hdr.ModTime = hdr.ModTime.Truncate(time.Second)
	if hdr.ModTime.After(s.date) {
		hdr.ModTime = s.date
	}
	for _, dir := range s.futureDated {
		if strings.HasPrefix("/"+clean+"/", dir+"/") {
			hdr.ModTime = futureDate
		}
	}
	return nil
}

// Bounds on names, as Linux has them.
const (
	nameMax = 255
	pathMax = 4096
)

// cleanName returns a tar entry's name relative to the root, "." for the root
// itself. It refuses names that are absolute, lead out of the root or are no
// names on Linux.
func cleanName(name string) (string, error) {
	clean := path.Clean(name)
	hostile := name == "" || path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") ||
		strings.ContainsRune(name, 0) || len(clean) > pathMax
	for _, part := range strings.Split(name, "/") {
		hostile = hostile || len(part) > nameMax || part == ".."
	}
	if hostile {
		return "", sandbox.Errorf(sandbox.Invalid, "the root filesystem has an entry with the unacceptable name %.300q", name)
	}
	return clean, nil
}

// layerWriter writes a compressed layer and hashes both its forms.
type layerWriter struct {
	file   *os.File
	sum    hash.Hash // of the file
	zw     *zstd.Encoder
	diff   hash.Hash // of the tar
	tar    *tar.Writer
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
	l.tar = tar.NewWriter(io.MultiWriter(l.zw, l.diff))
	return l, nil
}

func (l *layerWriter) close() (blob, error) {
	if err := errors.Join(l.tar.Close(), l.zw.Close(), l.file.Close()); err != nil {
		return blob{}, fmt.Errorf("write layer: %w", err)
	}
	return blob{path: l.file.Name(), digest: sha256Hash(l.sum), diffID: sha256Hash(l.diff), size: int64(l.length)}, nil
}

func sha256Hash(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", h.Sum(nil))}
}
