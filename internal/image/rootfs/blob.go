package rootfs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// Blob is a file with a compressed layer.
type Blob struct {
	Path   string
	Digest v1.Hash // of the file
	DiffID v1.Hash // of the tar in it
	Size   int64
}

// Layer returns the blob as a layer of an OCI image.
func (b Blob) Layer() v1.Layer { return blobLayer{b} }

// blobLayer is a layer whose compressed form is a file.
type blobLayer struct{ Blob }

var _ v1.Layer = blobLayer{}

func (l blobLayer) Digest() (v1.Hash, error)             { return l.Blob.Digest, nil }
func (l blobLayer) DiffID() (v1.Hash, error)             { return l.Blob.DiffID, nil }
func (l blobLayer) Size() (int64, error)                 { return l.Blob.Size, nil }
func (l blobLayer) MediaType() (types.MediaType, error)  { return types.OCILayerZStd, nil }
func (l blobLayer) Compressed() (io.ReadCloser, error)   { return os.Open(l.Path) }
func (l blobLayer) Uncompressed() (io.ReadCloser, error) { return openZstd(l.Path) }

func openZstd(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	zr, err := zstd.NewReader(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return zstdFile{zr, f}, nil
}

type zstdFile struct {
	*zstd.Decoder
	file *os.File
}

func (z zstdFile) Close() error {
	z.Decoder.Close()
	return z.file.Close()
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

func (l *layerWriter) close() (Blob, error) {
	if err := errors.Join(l.zw.Close(), l.file.Close()); err != nil {
		return Blob{}, fmt.Errorf("write layer: %w", err)
	}
	return Blob{Path: l.file.Name(), Digest: SHA256(l.sum), DiffID: SHA256(l.diff), Size: int64(l.length)}, nil
}

// SHA256 returns the sum of a sha256 in the type of the library for images.
func SHA256(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", h.Sum(nil))}
}

// Compress writes a plain tar of most bytes at most as a layer. Errors: Invalid for a stream
// that is not a complete tar or cannot be read; TooLarge.
func Compress(ctx context.Context, r io.Reader, file string, most int64) (Blob, error) {
	w, err := newLayerWriter(file)
	if err != nil {
		return Blob{}, err
	}
	m := &Meter{Limits: Limits{Bytes: most}}
	if _, err := io.Copy(w, m.Reader(UntilDone(ctx, r))); err != nil {
		w.file.Close()
		return Blob{}, layerError(err)
	}
	return w.close()
}
