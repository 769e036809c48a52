// Package sparse writes files with holes in place of blocks of zeros, which then take no space on the disk.
package sparse

import (
	"bytes"
	"io"
	"io/fs"
	"os"
)

// blockSize is the size of the blocks, aligned in the file, that become holes: a block of the usual file systems.
const blockSize = 4096

var zeroBlock [blockSize]byte

// Writer writes to a file that is new and empty. It is not safe for concurrent use.
type Writer struct {
	f        *os.File
	off, end int64
}

// NewWriter returns a writer to f. Only the writer may change f until Finish.
func NewWriter(f *os.File) *Writer { return &Writer{f: f} }

// At writes to different places of a file that is new and empty, whose length the caller sets. It is safe for concurrent use.
type At struct{ f *os.File }

// NewAt returns a writer to f.
func NewAt(f *os.File) At { return At{f} }

// WriteAt writes p at an offset.
func (w At) WriteAt(p []byte, off int64) (int, error) { return (&Writer{f: w.f, off: off}).Write(p) }

// Write writes p at the current offset.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		// Up to the block's end, and then by whole blocks of the same kind.
		n := min(len(p)-written, int(blockSize-w.off%blockSize))
		zero := isZero(p[written : written+n])
		for rest := p[written+n:]; len(rest) >= blockSize && isZero(rest[:blockSize]) == zero; rest = rest[blockSize:] {
			n += blockSize
		}
		if !zero {
			if m, err := w.f.WriteAt(p[written:written+n], w.off); err != nil {
				return written + m, err
			}
		}
		w.off += int64(n)
		written += n
	}
	w.end = max(w.end, w.off)
	return written, nil
}

func isZero(p []byte) bool { return bytes.Equal(p, zeroBlock[:len(p)]) }

// Seek changes the offset. Zeros do not overwrite data that was written before.
func (w *Writer) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		off += w.off
	case io.SeekEnd:
		off += w.end
	default:
		return 0, fs.ErrInvalid
	}
	w.off = off
	return off, nil
}

// Offset returns the current offset.
func (w *Writer) Offset() int64 { return w.off }

// Finish sets the length of the file.
func (w *Writer) Finish() error { return w.f.Truncate(w.end) }
