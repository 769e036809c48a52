// Package compressed reads compressed layers.
package compressed

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/modbox/modbox/internal/sandbox"
)

// zstdWindowMax bounds the memory that a compressed layer can ask for.
const zstdWindowMax = 128 << 20

// Open returns the tar in a layer. The first bytes decide about the compression, because
// registries name compressions wrongly.
func Open(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	magic, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, damagedLayer(err)
		}
		return io.NopCloser(Reader{zr}), nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindowMax))
		if err != nil {
			return nil, damagedLayer(err)
		}
		return struct {
			io.Reader
			io.Closer
		}{Reader{zr}, zr.IOReadCloser()}, nil
	}
	return io.NopCloser(br), nil
}

// Reader turns every read error into the error of a damaged layer: the file was checked a
// moment ago, so other errors are very unlikely.
type Reader struct{ From io.Reader }

func (d Reader) Read(p []byte) (int, error) {
	n, err := d.From.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damagedLayer(err)
	}
	return n, err
}

func damagedLayer(err error) error {
	return sandbox.Wrap(sandbox.Invalid, err, "the layer cannot be decompressed")
}
