package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// The header of a stream's file: magic, maximum bytes, dropped bytes, end in Unix nanoseconds.
const (
	magic      = "mbstrm01"
	headerSize = 32
	maxAt      = 8
	droppedAt  = 16
	endedAt    = 24
)

// timesSuffix names the file with the times of a stream.
const timesSuffix = ".times"

// Store is a directory of streams. It is safe for concurrent use. Processes that
// use a directory at the same time own different parts of the sandboxes.
type Store struct {
	dir   string
	owner *sandbox.Ownership
	log   *slog.Logger

	mu   sync.Mutex
	open map[sandbox.StreamID]*live // guarded by mu; streams with a writer or readers
}

// Open opens the directory for the owner of sandboxes, nil for all, and creates it if necessary. The logger receives what a writer cannot
// return: that the disk is full.
func Open(dir string, owner *sandbox.Ownership, log *slog.Logger) (*Store, error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("open streams: %w", err)
	}
	s := &Store{dir: dir, owner: owner, log: log, open: map[sandbox.StreamID]*live{}}
	return s, s.removeParts()
}

// live is the state shared by the writer and the readers of a stream.
type live struct {
	users int // guarded by Store.mu

	mu      sync.Mutex
	size    int64         // guarded by mu; bytes stored
	dropped int64         // guarded by mu
	ended   bool          // guarded by mu
	writer  bool          // guarded by mu; it has a writer
	changed chan struct{} // guarded by mu; closed at the next change; nil when nobody waits
}

// wake wakes all waiters to check again. The caller holds mu.
func (l *live) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// isShared reports whether other processes use the directory at the same time.
func (s *Store) isShared() bool { return s.owner.Part() != "" }

// catchUp takes over what a file has by now, unless this process writes it.
func (l *live) catchUp(h header, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer || size <= l.size && h.dropped == l.dropped && (h.ended != 0) == l.ended {
		return
	}
	l.size, l.dropped, l.ended = max(l.size, size), h.dropped, l.ended || h.ended != 0
	l.wake()
}

func (s *Store) path(id sandbox.StreamID) string { return filepath.Join(s.dir, string(id)) }

func notFound() error { return sandbox.Errorf(sandbox.NotFound, "there is no such stream") }

// Create creates an empty stream that stores at most max bytes. Errors: Exists, DiskFull, Invalid
// for an invalid ID.
func (s *Store) Create(id sandbox.StreamID, max int64) error {
	if _, ok := sandbox.ParseStreamID(string(id)); !ok {
		return sandbox.Errorf(sandbox.Invalid, "%q is not the id of a stream", string(id))
	}
	header := make([]byte, headerSize)
	copy(header, magic)
	binary.BigEndian.PutUint64(header[maxAt:], uint64(max))
	f, err := os.OpenFile(s.path(id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(header)
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(s.path(id)) // it is useless; if this fails the sweep removes it
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return sandbox.Errorf(sandbox.Exists, "the stream exists")
	case isFull(err):
		return sandbox.Wrap(sandbox.DiskFull, err, "the server's disk is full")
	case err != nil:
		return fmt.Errorf("make stream: %w", err)
	}
	return nil
}

// header is the beginning of a stream's file.
type header struct {
	max, dropped, ended int64
}

// readHeader reads the header and returns the number of bytes stored. Errors: Unsupported when it is damaged.
func readHeader(f *os.File) (header, int64, error) {
	var b [headerSize]byte
	switch _, err := f.ReadAt(b[:], 0); {
	case errors.Is(err, io.EOF) || err == nil && string(b[:len(magic)]) != magic:
		return header{}, 0, sandbox.Errorf(sandbox.Unsupported, "the stream's file is damaged: it does not begin with the header of a stream")
	case err != nil:
		return header{}, 0, fmt.Errorf("read stream: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return header{}, 0, err
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	return header{max: at(maxAt), dropped: at(droppedAt), ended: at(endedAt)}, info.Size() - headerSize, nil
}

// acquire opens a stream's file and its shared state. The caller releases both.
func (s *Store) acquire(id sandbox.StreamID, flag int) (*os.File, header, *live, error) {
	if _, ok := sandbox.ParseStreamID(string(id)); !ok {
		return nil, header{}, nil, notFound()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.path(id), flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, header{}, nil, notFound()
	}
	if err != nil {
		return nil, header{}, nil, fmt.Errorf("open stream: %w", err)
	}
	h, size, err := readHeader(f)
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, header{}, nil, err
	}
	l := s.open[id]
	if l == nil {
		l = &live{size: size, dropped: h.dropped, ended: h.ended != 0}
		s.open[id] = l
	} else if s.isShared() {
		l.catchUp(h, size)
	}
	l.users++
	return f, h, l, nil
}

func (s *Store) release(id sandbox.StreamID, l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 && s.open[id] == l {
		delete(s.open, id)
	}
}

// Info describes a stream. Errors: NotFound.
func (s *Store) Info(id sandbox.StreamID) (sandbox.StreamInfo, error) {
	f, _, l, err := s.acquire(id, os.O_RDONLY)
	if err != nil {
		return sandbox.StreamInfo{}, err
	}
	defer s.release(id, l)
	_ = f.Close() // it was only read
	return l.info(id), nil
}

func (l *live) info(id sandbox.StreamID) sandbox.StreamInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sandbox.StreamInfo{ID: id, Bytes: l.size, Truncated: l.dropped > 0, Ended: l.ended}
}

// Remove removes a stream; a stream that does not exist is not an error. Readers of it reach its
// end.
func (s *Store) Remove(id sandbox.StreamID) error {
	if _, ok := sandbox.ParseStreamID(string(id)); !ok {
		return nil
	}
	s.mu.Lock()
	l, err := s.removeFiles(id)
	s.mu.Unlock()
	if l != nil {
		l.mu.Lock()
		l.ended = true
		l.wake()
		l.mu.Unlock()
	}
	return err
}

// removeFiles removes the files of a stream, and returns what its writer and readers share; nil if it has none.
//
// Preconditions: s.mu is held.
func (s *Store) removeFiles(id sandbox.StreamID) (*live, error) {
	l := s.open[id]
	err := errors.Join(remove(s.path(id)), remove(s.path(id)+timesSuffix))
	delete(s.open, id)
	if err != nil {
		return l, fmt.Errorf("remove stream: %w", err)
	}
	return l, nil
}

// RemoveUnused removes a stream of [Store.Unused], unless it was opened or used meanwhile.
func (s *Store) RemoveUnused(id sandbox.StreamID, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path(id))
	if s.open[id] != nil || err == nil && !info.ModTime().Before(before) {
		return nil
	}
	_, err = s.removeFiles(id)
	return err
}

// Use makes a stream as young as if it had changed now, so that [Store.RemoveUnused] keeps it until a record names it. Errors: NotFound.
func (s *Store) Use(id sandbox.StreamID) error {
	if _, ok := sandbox.ParseStreamID(string(id)); !ok {
		return notFound()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	err := os.Chtimes(s.path(id), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return notFound()
	}
	return err
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sizes returns the bytes of all streams' files.
func (s *Store) Sizes() (map[sandbox.StreamID]int64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("measure streams: %w", err)
	}
	sizes := make(map[sandbox.StreamID]int64, len(entries))
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // otherwise it was removed meanwhile
			sizes[sandbox.StreamID(e.Name())] = info.Size()
		}
	}
	return sizes, nil
}

// Unused returns the streams that nobody has open and that did not change since before.
func (s *Store) Unused(before time.Time) ([]sandbox.StreamID, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	var ids []sandbox.StreamID
	for _, e := range entries {
		id, ok := sandbox.ParseStreamID(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil || !info.ModTime().Before(before) {
			continue // removed meanwhile, or too young
		}
		s.mu.Lock()
		used := s.open[id] != nil
		s.mu.Unlock()
		if !used {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
