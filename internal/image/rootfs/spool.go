package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/modbox/modbox/internal/sandbox"
)

// spool keeps the contents of files until the root filesystem is written, with
// holes where they have any.
type spool struct {
	file *os.File
	out  *sparseWriter
	buf  []byte
}

func newSpool(name string) (*spool, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("keep files: %w", err)
	}
	return spoolIn(f), nil
}

// newTempSpool returns a spool whose file has no name any more: it is gone when it is closed.
func newTempSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "files-")
	if err != nil {
		return nil, fmt.Errorf("keep files: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) { // the clean-up of another process may remove it
		f.Close()
		return nil, fmt.Errorf("keep files: %w", err)
	}
	return spoolIn(f), nil
}

func spoolIn(f *os.File) *spool {
	return &spool{file: f, out: &sparseWriter{f: f}, buf: make([]byte, 256<<10)}
}

// add keeps what r has to its end.
func (s *spool) add(r io.Reader) (*io.SectionReader, error) {
	start := (s.out.off + blockSize - 1) / blockSize * blockSize // so that holes are found
	s.out.off = start
	n, err := io.CopyBuffer(struct{ io.Writer }{s.out}, r, s.buf)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(s.file, start, n), nil
}

// finish makes everything readable that was added.
func (s *spool) finish() error { return s.out.finish() }

// Limits bound layers.
type Limits struct {
	Bytes   int64 // of the layers uncompressed, and of their files
	Entries int
}

// Meter counts how much layers use of their limits.
type Meter struct {
	Limits
	stream, files int64
	seen          int
}

// imply counts the directories of a tree that no entry made: one entry's name may
// have thousands.
func (m *Meter) imply(t *Tree) error {
	if t.made > m.Entries {
		return sandbox.Errorf(sandbox.TooLarge, "its layers have names in more than %d directories", m.Entries)
	}
	return nil
}

// Entry counts an entry with the size that it claims; a sparse file's size says
// nothing about how much of the layer it is.
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

// Reader returns r, which fails when it gives more than the limit.
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
