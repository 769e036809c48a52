package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Reader reads a stream. Read must be called by a single goroutine; Close may be called at any
// time.
type Reader struct {
	store  *Store
	id     sandbox.StreamID
	ctx    context.Context
	file   *os.File
	live   *live
	follow bool
	offset int64
	once   sync.Once
	closed chan struct{}
}

// Reader returns the content of the stream from offset on. With follow it waits at the end for more
// until the stream ends; otherwise it ends at the present end. Reads fail with ctx's cause when ctx
// ends.
//
// Errors: NotFound; Invalid for an offset beyond the end.
func (s *Store) Reader(ctx context.Context, id sandbox.StreamID, offset int64, follow bool) (*Reader, sandbox.StreamInfo, error) {
	f, _, l, err := s.acquire(id, os.O_RDONLY)
	if err != nil {
		return nil, sandbox.StreamInfo{}, err
	}
	info := l.info(id)
	if offset < 0 || offset > info.Bytes {
		_ = f.Close() // nothing was written
		s.release(id, l)
		return nil, info, sandbox.InvalidField("offset", "must be 0 to %d, the number of bytes", info.Bytes)
	}
	return &Reader{store: s, id: id, ctx: ctx, file: f, live: l, follow: follow, offset: offset, closed: make(chan struct{})}, info, nil
}

// Offset returns the offset of the next byte.
func (r *Reader) Offset() int64 { return r.offset }

func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	size, err := r.wait()
	if err != nil {
		return 0, err
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), size-r.offset)], headerSize+r.offset)
	r.offset += int64(n)
	if n > 0 {
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // the file is shorter than it was
	}
	return 0, err
}

// lookEvery is the time between two looks at a file that another process may write.
const lookEvery = 200 * time.Millisecond

// wait returns the stream's size once that is beyond the reader's offset.
func (r *Reader) wait() (int64, error) {
	l := r.live
	var looks <-chan time.Time
	if r.follow && r.store.isShared() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		l.mu.Lock()
		size, ended := l.size, l.ended
		if size > r.offset {
			l.mu.Unlock()
			return size, nil
		}
		if ended || !r.follow {
			l.mu.Unlock()
			return 0, io.EOF
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-looks:
			if h, size, err := readHeader(r.file); err == nil { // else a later look sees it
				l.catchUp(h, size)
			}
		case <-r.closed:
			return 0, fs.ErrClosed
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		}
	}
}

// Close ends the reader, including a Read that waits.
func (r *Reader) Close() error {
	var err error
	r.once.Do(func() {
		close(r.closed)
		r.store.release(r.id, r.live)
		err = r.file.Close()
	})
	return err
}

// timeSize is a record of the file with times: an offset and Unix nanoseconds.
const timeSize = 16

// Timestamped returns the content of r with a time before every line: when its first byte arrived,
// in the format of RFC 3339 with nanoseconds, and a space. Closing it closes r.
func (s *Store) Timestamped(r *Reader) io.ReadCloser {
	t := &timestamped{Reader: r, lineStart: true}
	t.times, _ = os.Open(s.path(r.id) + timesSuffix) // without it the time of reading is used
	return t
}

type timestamped struct {
	*Reader
	times     *os.File // nil when there is none
	record    int64    // the next record to look at
	at        time.Time
	lineStart bool
	raw       [16 << 10]byte
	out       bytes.Buffer
}

func (t *timestamped) Read(p []byte) (int, error) {
	for t.out.Len() == 0 {
		offset := t.offset
		n, err := t.Reader.Read(t.raw[:])
		if n == 0 {
			return 0, err
		}
		for data := t.raw[:n]; len(data) > 0; {
			if t.lineStart {
				t.out.WriteString(t.timeOf(offset).UTC().Format("2006-01-02T15:04:05.000000000Z07:00"))
				t.out.WriteByte(' ')
			}
			line := data
			if i := bytes.IndexByte(data, '\n'); i >= 0 {
				line = data[:i+1]
			}
			t.out.Write(line)
			t.lineStart = line[len(line)-1] == '\n'
			data = data[len(line):]
			offset += int64(len(line))
		}
	}
	return t.out.Read(p)
}

// timeOf returns when the byte at offset arrived. Offsets must not decrease.
func (t *timestamped) timeOf(offset int64) time.Time {
	var b [timeSize]byte
	for t.times != nil {
		if _, err := t.times.ReadAt(b[:], t.record*timeSize); err != nil {
			break
		}
		if int64(binary.BigEndian.Uint64(b[:8])) > offset {
			break
		}
		t.at = time.Unix(0, int64(binary.BigEndian.Uint64(b[8:])))
		t.record++
	}
	if t.at.IsZero() {
		t.at = time.Now()
	}
	return t.at
}

func (t *timestamped) Close() error {
	err := t.Reader.Close()
	if t.times != nil {
		err = errors.Join(err, t.times.Close())
	}
	return err
}
