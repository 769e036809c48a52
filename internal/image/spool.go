package image

import (
	"fmt"
	"io"
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
	return &spool{file: f, out: &sparseWriter{f: f}, buf: make([]byte, 256<<10)}, nil
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

// limits bound what layers may be.
type limits struct {
	bytes   int64 // of the layers uncompressed, and of their files
	entries int
}

// meter counts what layers use of their limits.
type meter struct {
	limits
	stream, files int64
	seen          int
}

// imply counts the directories of a tree that no entry made: one entry's name may
// have thousands.
func (m *meter) imply(t *tree) error {
	if t.made > m.entries {
		return sandbox.Errorf(sandbox.TooLarge, "its layers have names in more than %d directories", m.entries)
	}
	return nil
}

// entry counts an entry with the size that it claims; a sparse file's size says
// nothing about how much of the layer it is.
func (m *meter) entry(size int64) error {
	m.seen++
	m.files += size
	if m.seen > m.entries {
		return sandbox.Errorf(sandbox.TooLarge, "its layers have more than %d entries", m.entries)
	}
	if m.files > m.bytes || size < 0 {
		return m.tooManyBytes()
	}
	return nil
}

func (m *meter) tooManyBytes() error {
	return sandbox.Errorf(sandbox.TooLarge, "its layers have more than %d bytes", m.bytes)
}

// reader returns r, which fails when it gives more than the limit.
func (m *meter) reader(r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if m.stream += int64(n); m.stream > m.bytes {
			return 0, m.tooManyBytes()
		}
		return n, err
	})
}
