package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sparse"
)

// spool stores the contents of files until the root filesystem is written, with holes.
type spool struct {
	file *os.File
	out  *sparse.Writer
	buf  []byte
}

func newSpool(name string) (*spool, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("keep files: %w", err)
	}
	return spoolIn(f), nil
}

// newTempSpool returns a spool in a file without a name: it disappears when it is closed.
func newTempSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "files-")
	if err != nil {
		return nil, fmt.Errorf("keep files: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) { // another process may have removed it
		f.Close()
		return nil, fmt.Errorf("keep files: %w", err)
	}
	return spoolIn(f), nil
}

func spoolIn(f *os.File) *spool {
	return &spool{file: f, out: sparse.NewWriter(f), buf: make([]byte, 256<<10)}
}

// add stores the content of r.
func (s *spool) add(r io.Reader) (*io.SectionReader, error) {
	start := (s.out.Offset() + blockSize - 1) / blockSize * blockSize // so that it has holes
	if _, err := s.out.Seek(start, io.SeekStart); err != nil {
		return nil, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{s.out}, r, s.buf)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(s.file, start, n), nil
}

// finish makes the stored contents readable.
func (s *spool) finish() error { return s.out.Finish() }

// Limits bound layers.
type Limits struct {
	Bytes   int64 // of the uncompressed layers, and of their files
	Entries int
}

// Meter counts the use of the limits by layers.
type Meter struct {
	Limits
	stream, files int64
	seen          int
}

// imply counts the directories of a tree without an entry: the name of a single entry may have
// thousands.
func (m *Meter) imply(t *Tree) error {
	if t.made > m.Entries {
		return sandbox.Errorf(sandbox.TooLarge, "its layers have names in more than %d directories", m.Entries)
	}
	return nil
}

// Entry counts an entry with the size in its header; a sparse file's size does not limit its part
// of the layer.
func (m *Meter) Entry(size int64) error {
	m.seen++
	m.files += size
	if m.seen > m.Entries {
		return sandbox.Errorf(sandbox.TooLarge, "its layers have more than %d entries", m.Entries)
	}
	if m.files > m.Bytes || size < 0 {
		return m.tooManyBytes()
	}
	return nil
}

func (m *Meter) tooManyBytes() error {
	return sandbox.Errorf(sandbox.TooLarge, "its layers have more than %d bytes", m.Bytes)
}

// Reader returns r, whose reads fail beyond the limit.
func (m *Meter) Reader(r io.Reader) io.Reader { return meteredReader{m, r} }

type meteredReader struct {
	meter *Meter
	r     io.Reader
}

func (r meteredReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.meter.stream += int64(n); r.meter.stream > r.meter.Bytes {
		return 0, r.meter.tooManyBytes()
	}
	return n, err
}
