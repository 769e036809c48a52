package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// newPrefix begins the names of files that are not complete. The part of the server follows.
const newPrefix = "new-"

// prefix begins the names of the incomplete files of this server.
func (s *Store) prefix() string { return newPrefix + s.owner.Part() + "-" }

// Dir returns the directory of the streams.
func (s *Store) Dir() string { return s.dir }

// Copy is an ended stream as bytes: its file, and then its times. Another store makes the same stream of them.
type Copy struct {
	io.Reader
	Size, Times int64 // bytes of each
	files       []*os.File
}

// Close ends the use of the copy.
func (c *Copy) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Export returns an ended stream. Errors: NotFound; Conflict when it has not ended; Unsupported when its file is damaged.
func (s *Store) Export(id sandbox.StreamID) (_ *Copy, err error) {
	f, h, l, err := s.acquire(id, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	s.release(id, l) // it does not change any more, and the file stays readable when it is removed
	c := &Copy{files: []*os.File{f}}
	defer func() {
		if err != nil {
			_ = c.Close() // they were only read
		}
	}()
	if h.ended == 0 {
		return nil, sandbox.Errorf(sandbox.Conflict, "the stream has not ended")
	}
	if c.Size, err = sizeOf(f); err != nil {
		return nil, err
	}
	readers := []io.Reader{io.NewSectionReader(f, 0, c.Size)}
	if times, err := os.Open(s.path(id) + timesSuffix); err == nil {
		c.files = append(c.files, times)
		if c.Times, err = sizeOf(times); err != nil {
			return nil, err
		}
		readers = append(readers, io.NewSectionReader(times, 0, c.Times))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c.Reader = io.MultiReader(readers...)
	return c, nil
}

func sizeOf(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Import makes the stream of a copy, which appears when it is complete and on the disk. It does nothing if the stream exists. Errors: Invalid for
// a copy that is no ended stream; DiskFull; errors of r.
func (s *Store) Import(id sandbox.StreamID, r io.Reader, size, times int64) (err error) {
	if _, ok := sandbox.ParseStreamID(string(id)); !ok {
		return sandbox.Errorf(sandbox.Invalid, "%q is not the id of a stream", string(id))
	}
	part, err := os.MkdirTemp(s.dir, s.prefix())
	if err != nil {
		return full(err)
	}
	defer func() { err = errors.Join(full(err), os.RemoveAll(part)) }()
	content, stamps := filepath.Join(part, "content"), filepath.Join(part, "times")
	if err := fill(content, r, size); err != nil {
		return err
	}
	if err := fill(stamps, r, times); err != nil {
		return err
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return sandbox.Wrap(sandbox.Invalid, err, "the copy of the stream is longer than it says")
	}
	if err := checkEnded(content); err != nil {
		return err
	}
	if err := s.place(id, content, stamps, times > 0); err != nil {
		return err
	}
	return durable.Sync(s.dir)
}

// place gives the files of a copy the names of a stream, if there is no such stream.
func (s *Store) place(id sandbox.StreamID, content, stamps string, timed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(s.path(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if timed {
		if err := os.Rename(stamps, s.path(id)+timesSuffix); err != nil {
			return err
		}
	}
	return os.Rename(content, s.path(id))
}

// fill writes the next size bytes of r to a new file.
func fill(name string, r io.Reader, size int64) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.CopyN(f, r, size); errors.Is(err, io.EOF) {
		return sandbox.Errorf(sandbox.Invalid, "the copy of the stream is shorter than it says")
	} else if err != nil {
		return err
	}
	return f.Sync()
}

// checkEnded returns an error unless a file has an ended stream.
func checkEnded(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	h, _, err := readHeader(f)
	if err != nil || h.ended == 0 {
		return sandbox.Wrap(sandbox.Invalid, err, "the copy is not of an ended stream")
	}
	return nil
}

// full returns an error with its code.
func full(err error) error {
	if isFull(err) {
		return sandbox.Wrap(sandbox.DiskFull, err, "the server's disk is full")
	}
	return err
}

// Empty returns the file of an ended stream without bytes. truncated says that bytes were dropped.
func Empty(ended time.Time, truncated bool) []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	if truncated {
		binary.BigEndian.PutUint64(b[droppedAt:], 1)
	}
	binary.BigEndian.PutUint64(b[endedAt:], uint64(max(1, min(ended.UnixNano(), math.MaxInt64))))
	return b
}

// removeParts removes what interrupted imports of this server, and of servers that are gone, have left.
func (s *Store) removeParts() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("open streams: %w", err)
	}
	for _, e := range entries {
		name, isNew := strings.CutPrefix(e.Name(), newPrefix)
		part, _, _ := strings.Cut(name, "-")
		if isNew && (part == s.owner.Part() || s.owner.Sweeps(part)) {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return fmt.Errorf("open streams: %w", err)
			}
		}
	}
	return nil
}
