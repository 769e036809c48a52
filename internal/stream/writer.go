package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// timesEvery is the resolution of the times of bytes.
const timesEvery = time.Millisecond

// Writer appends to a stream. It must be used by a single goroutine.
type Writer struct {
	store *Store
	id    sandbox.StreamID
	file  *os.File
	times *os.File // nil when it cannot be written
	live  *live
	max   int64
	last  time.Time // of the last record in times
	gap   int64     // bytes lost since the last stored byte, because the disk was full
}

// gapNote is inserted where bytes are missing because the disk was full.
const gapNote = "\n[modbox: output is missing here, because the server's disk was full]\n"

// Writer returns the writer of a stream, to continue where the last one stopped. The writer of a
// stream that has ended can return its length, and refuses writes. Errors: NotFound; Conflict when
// the stream has a writer.
func (s *Store) Writer(id sandbox.StreamID) (*Writer, error) {
	f, h, l, err := s.acquire(id, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := s.claim(f, l); err != nil {
		_ = f.Close() // nothing was written
		s.release(id, l)
		return nil, err
	}
	w := &Writer{store: s, id: id, file: f, live: l, max: h.max}
	// Times are optional: the stream works without them.
	w.times, _ = os.OpenFile(s.path(id)+timesSuffix, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return w, nil
}

// claim makes the caller the writer of a stream, until it closes the file. Errors: Conflict when the stream has a writer, in this process or another.
func (s *Store) claim(f *os.File, l *live) error {
	taken := sandbox.Errorf(sandbox.Conflict, "the stream already has a writer")
	l.mu.Lock()
	busy := l.writer
	l.mu.Unlock()
	if busy {
		return taken
	}
	if s.isShared() {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return taken
		} else if err != nil {
			return fmt.Errorf("lock stream: %w", err)
		}
		h, size, err := readHeader(f) // another process may have written meanwhile
		if err != nil {
			return err
		}
		l.catchUp(h, size)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer {
		return taken
	}
	l.writer = true
	return nil
}

// Offset returns how many bytes were written so far, stored or not, over all writers.
func (w *Writer) Offset() int64 {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	return w.live.size + w.live.dropped
}

// Free returns how many more bytes would be stored.
func (w *Writer) Free() int64 {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	return max(w.max-w.live.size, 0)
}

// Lossy reports whether bytes were dropped, by this writer or another.
func (w *Writer) Lossy() bool {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	return w.live.dropped > 0
}

// Write appends p. Bytes that cannot be stored are dropped without an error, and a note replaces
// them once there is space again. Write fails only when the header cannot be written, or with
// Conflict after the end.
func (w *Writer) Write(p []byte) (int, error) {
	// Only the writer changes size and dropped.
	l := w.live
	if len(p) > 0 && w.Ended() {
		return 0, sandbox.Errorf(sandbox.Conflict, "the stream has ended")
	}
	kept, err := w.keep(p)
	if err != nil && w.gap == 0 {
		w.store.log.Error("output of a command is lost", "error", err)
	}
	dropped := int64(len(p)) - kept
	if err != nil {
		w.gap += dropped
	}
	if dropped != 0 {
		if err := w.number(droppedAt, l.dropped+dropped); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size += kept
	l.dropped += dropped
	l.wake()
	return len(p), nil
}

// keep appends as much of p as fits and returns by how many bytes the stream grew. After a gap it
// begins with a note, whose bytes replace lost bytes: so the sum of size and dropped bytes remains
// the number of written bytes.
func (w *Writer) keep(p []byte) (int64, error) {
	free := w.Free()
	if w.gap > 0 && free > 0 {
		// At least one byte remains counted as dropped, so that Lossy reports the loss.
		missing := int64(len(gapNote)) + 1 - w.gap
		if missing > int64(len(p)) {
			w.gap += int64(len(p))
			return 0, nil
		}
		p = append([]byte(gapNote), p[max(missing, 0):]...)
	}
	p = p[:min(int64(len(p)), free)]
	if len(p) == 0 {
		return 0, nil
	}
	w.stamp(w.live.size)
	n, err := w.file.WriteAt(p, headerSize+w.live.size)
	if err == nil {
		w.gap = 0
	}
	return int64(n), err
}

// Ended reports whether the stream has ended.
func (w *Writer) Ended() bool {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	return w.live.ended
}

// stamp records when the byte at offset arrived.
func (w *Writer) stamp(offset int64) {
	now := time.Now()
	if w.times == nil || now.Sub(w.last) < timesEvery {
		return
	}
	w.last = now
	var b [timeSize]byte
	binary.BigEndian.PutUint64(b[:8], uint64(offset))
	binary.BigEndian.PutUint64(b[8:], uint64(now.UnixNano()))
	if _, err := w.times.Write(b[:]); err != nil {
		_ = w.times.Close() // it is useless now
		w.times = nil
	}
}

// number overwrites a number of the header, which needs no space on the disk.
func (w *Writer) number(at int64, n int64) error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	_, err := w.file.WriteAt(b[:], at)
	return err
}

// End marks the stream as complete, and closes the writer. When it returns nil, the stream is on
// the disk.
func (w *Writer) End() error {
	err := errors.Join(w.number(endedAt, time.Now().UnixNano()), w.sync())
	w.live.mu.Lock()
	w.live.ended = true
	w.live.wake()
	w.live.mu.Unlock()
	return errors.Join(err, w.Close())
}

// sync makes the stream and its name survive a loss of power.
func (w *Writer) sync() error {
	return errors.Join(w.file.Sync(), durable.Sync(w.store.dir))
}

// Close releases the stream without ending it.
func (w *Writer) Close() error {
	err := w.file.Close() // the next writer finds it unlocked
	w.live.mu.Lock()
	w.live.writer = false
	w.live.mu.Unlock()
	w.store.release(w.id, w.live)
	if w.times != nil {
		_ = w.times.Close() // lost times do no harm
	}
	return err
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
