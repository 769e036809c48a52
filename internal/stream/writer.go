package stream

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// timesEvery is how exact the times of bytes are, at best.
const timesEvery = time.Millisecond

// Writer appends to a stream. It is for one goroutine.
type Writer struct {
	store *Store
	id    sandbox.StreamID
	file  *os.File
	times *os.File // nil when it cannot be written
	live  *live
	max   int64
	last  time.Time // of the last record in times
	gap   int64     // bytes lost since the last that was kept, because the disk was full
}

// gapNote stands in a stream where bytes are missing because the disk was full.
const gapNote = "\n[modbox: output is missing here, because the server's disk was full]\n"

// Writer returns the writer of a stream, to go on where the last one stopped.
// That of a stream which has ended can say how long it is, and refuses writes.
// Errors: NotFound; Conflict when the stream has a writer.
func (s *Store) Writer(id sandbox.StreamID) (*Writer, error) {
	f, h, l, err := s.acquire(id, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	busy := l.writer
	l.writer = true
	l.mu.Unlock()
	if busy {
		_ = f.Close() // nothing was written
		s.release(id, l)
		return nil, sandbox.Errorf(sandbox.Conflict, "somebody else writes to the stream")
	}
	w := &Writer{store: s, id: id, file: f, live: l, max: h.max}
	// Times are a comfort: without them the stream is as good.
	w.times, _ = os.OpenFile(s.path(id)+timesSuffix, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return w, nil
}

// Offset returns how many bytes were written so far, kept or not, over all writers.
func (w *Writer) Offset() int64 {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	return w.live.size + w.live.dropped
}

// Room returns how many more bytes would be kept.
func (w *Writer) Room() int64 {
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

// Write appends p. Bytes that cannot be kept are dropped without an error, and a note
// stands in their place once there is space again. Write fails only when the header
// cannot be written, or with Conflict after the end.
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

// keep appends as much of p as there is room for and returns by how many bytes the
// stream grew. After a gap it begins with a note, whose bytes take the place of lost
// bytes: so the size and the count of dropped bytes stay, in sum, what was written.
func (w *Writer) keep(p []byte) (int64, error) {
	room := w.Room()
	if w.gap > 0 && room > 0 {
		// At least one byte stays counted as dropped, so that the stream says so.
		missing := int64(len(gapNote)) + 1 - w.gap
		if missing > int64(len(p)) {
			w.gap += int64(len(p))
			return 0, nil
		}
		p = append([]byte(gapNote), p[max(missing, 0):]...)
	}
	p = p[:min(int64(len(p)), room)]
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

// Ended reports whether nothing may be written any more.
func (w *Writer) Ended() bool {
	w.live.mu.Lock()
	defer w.live.mu.Unlock()
	return w.live.ended
}

// stamp notes when the byte at offset came.
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
		_ = w.times.Close() // it is of no use any more
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

// End says that nothing more will be written, and closes the writer. When it returns nil,
// the stream is on the disk.
func (w *Writer) End() error {
	err := errors.Join(w.number(endedAt, time.Now().UnixNano()), w.sync())
	w.live.mu.Lock()
	w.live.ended = true
	w.live.wake()
	w.live.mu.Unlock()
	return errors.Join(err, w.Close())
}

// sync has the stream and its name outlive a loss of power.
func (w *Writer) sync() error {
	return errors.Join(w.file.Sync(), durable.Sync(w.store.dir))
}

// Close lets go of the stream without ending it.
func (w *Writer) Close() error {
	w.live.mu.Lock()
	w.live.writer = false
	w.live.mu.Unlock()
	w.store.release(w.id, w.live)
	if w.times != nil {
		_ = w.times.Close() // what is lost of it is not missed
	}
	return w.file.Close()
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
