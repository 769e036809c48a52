package agentapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"syscall"
)

// Stream is a connection to a running or ended process. Next must be called by a single goroutine
// at a time; all other methods may be called at any time.
type Stream struct {
	client  *Client
	ctx     context.Context
	request request
	answer  *answer
	frames  *FrameReader
	started Started

	offset int64 // of the next output byte; written by the goroutine of Next, under mu
	exited bool  // Next has returned the exit
	ended  error // the error that Next returns from then on
	onExit func(Exit)
	// onClose, when set, is called once by Close.
	onClose func()

	mu    sync.Mutex
	stdin *io.PipeWriter // writes are ordered by writeMu

	writeMu sync.Mutex
	buf     []byte // guarded by writeMu
}

// Exec starts a process and attaches to it. ctx applies to the whole life of the stream; when it
// ends, the stream ends, and the process has a client less. Errors of the agent: CodeNoProgram when
// the program does not exist, CodeDenied when it cannot be executed, CodeNoCwd when the working
// directory does not exist, CodeInvalid for a user that does not exist or limits that the agent does
// not know, CodeTooMany.
//
// A command without an ID gets one, so that a start can be repeated after its answer was lost,
// without running the command twice.
func (c *Client) Exec(ctx context.Context, cmd Command) (*Stream, error) {
	if cmd.ID == "" {
		cmd.ID = rand.Text()
	}
	start, err := AppendJSONFrame(nil, FrameStart, cmd)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "the command is too large: " + err.Error()}
	}
	s, err := c.stream(ctx, request{method: http.MethodPost, path: "/exec"}, start, 0)
	if err != nil || cmd.Limits.IsZero() || s.started.Limited {
		return s, err
	}
	defer s.Close()
	if err := s.Signal(int(syscall.SIGKILL)); err != nil {
		return nil, err
	}
	return nil, &Error{Code: CodeInvalid, Message: "limits: the sandbox was started by a version of Modbox that cannot limit commands; create another, or leave out limits"}
}

// FromEnd is the offset of [Client.Attach] for only the output that follows.
const FromEnd = -2

// Attach attaches to a process by its ID and returns its output from the byte at offset on, or from
// the oldest byte that the agent still has when offset is negative, except FromEnd. ctx is as in
// Exec. Errors of the agent: CodeNotFound; CodeOutputGone when the output at offset was discarded.
func (c *Client) Attach(ctx context.Context, processID string, offset int64) (*Stream, error) {
	r := request{method: http.MethodPost, path: processPath(processID, "attach"), query: url.Values{"offset": {number(offset)}}}
	return c.stream(ctx, r, nil, offset)
}

// stream opens a duplex call whose body begins with the bytes of first.
func (c *Client) stream(ctx context.Context, r request, first []byte, offset int64) (*Stream, error) {
	s := &Stream{client: c, ctx: ctx}
	r.again, r.size = true, -1
	r.body = func() io.ReadCloser {
		pr, pw := io.Pipe()
		s.mu.Lock()
		s.stdin = pw
		s.mu.Unlock()
		return prefixed{io.MultiReader(bytes.NewReader(first), pr), pr}
	}
	a, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	r.body = nil // the command can be large, and is not needed again
	s.request, s.answer, s.frames = r, a, answerFrames(a.Body)
	if err := s.readStarted(offset); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// prefixed is a pipe with bytes before its content.
type prefixed struct {
	io.Reader
	io.Closer
}

func (s *Stream) readStarted(offset int64) error {
	f, err := s.frames.Next()
	if err != nil {
		return s.explain(err)
	}
	if f.Type != FrameStarted {
		return fmt.Errorf("%w: %s begins with frame 0x%02x", ErrBadAnswer, s.request.path, f.Type)
	}
	if err := json.Unmarshal(f.Data, &s.started); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadAnswer, s.request.path, err)
	}
	if s.started.Offset < 0 || offset >= 0 && s.started.Offset != offset {
		return fmt.Errorf("%w: %s begins at byte %d, not %d", ErrBadAnswer, s.request.path, s.started.Offset, offset)
	}
	s.offset = s.started.Offset
	return nil
}

// OnExit makes Next call f once, before it returns the exit. OnExit must be called before the first
// Next.
func (s *Stream) OnExit(f func(Exit)) { s.onExit = f }

// OnClose sets a function to be called once, when the stream ends or is closed, whichever comes
// first. OnClose must be called before the first Next.
func (s *Stream) OnClose(f func()) { s.onClose = sync.OnceFunc(f) }

// Info returns the state of the process at the beginning of the stream.
func (s *Stream) Info() ProcessInfo { return s.started.ProcessInfo }

// StdinOffset returns how many bytes of stdin the agent had accepted, over all streams of the
// process, when this stream began: where to continue after a broken stream.
func (s *Stream) StdinOffset() int64 { return s.started.Stdin }

// Offset returns the offset of the next output byte: where to attach to continue reading.
func (s *Stream) Offset() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset
}

// Next returns the next frame: stdout and stderr as they come, then one exit, then io.EOF. Any
// other error means that the stream ended before the process did or contained invalid data; it is
// never io.EOF, and further calls return it again. The data of a frame is valid until the next
// call.
func (s *Stream) Next() (Frame, error) {
	if s.ended != nil {
		return Frame{}, s.ended
	}
	if s.exited {
		s.ended = io.EOF
		s.Close()
		return Frame{}, io.EOF
	}
	f, err := s.next()
	if err != nil {
		s.ended = err
		s.Close()
	}
	return f, err
}

func (s *Stream) next() (Frame, error) {
	for {
		f, err := s.frames.Next()
		if err != nil {
			return Frame{}, s.explain(err)
		}
		switch f.Type {
		case FrameStdout, FrameStderr:
			if len(f.Data) == 0 {
				continue
			}
			s.mu.Lock()
			s.offset += int64(len(f.Data))
			s.mu.Unlock()
			return f, nil
		case FrameExit:
			f.Exit = new(Exit)
			if err := json.Unmarshal(f.Data, f.Exit); err != nil {
				return Frame{}, fmt.Errorf("%w: %s: exit: %w", ErrBadAnswer, s.request.path, err)
			}
			if err := f.Exit.Limit.check(); err != nil {
				return Frame{}, err
			}
			s.exited = true
			if s.onExit != nil {
				s.onExit(*f.Exit)
			}
			return f, nil
		default:
			return Frame{}, fmt.Errorf("%w: %s: unexpected frame 0x%02x", ErrBadAnswer, s.request.path, f.Type)
		}
	}
}

// explain returns why the frames ended early.
func (s *Stream) explain(err error) error {
	switch {
	case errors.Is(err, ErrBadAnswer):
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return s.client.explain(s.ctx, s.request, s.answer.conn, err)
}

// Write sends p to the process's stdin. It blocks while the process does not read, until the stream
// ends. It fails after CloseStdin and after the end.
func (s *Stream) Write(p []byte) (int, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	done := 0
	for done < len(p) {
		part := p[done:min(len(p), done+MaxFrame/2)]
		s.buf = AppendFrame(s.buf[:0], FrameStdin, part)
		if _, err := s.stdin.Write(s.buf); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// WriteAt sends p as the bytes of stdin from offset on, counted over all streams of the process;
// bytes that the agent accepted before, on any stream, are skipped. Otherwise it is like Write.
func (s *Stream) WriteAt(p []byte, offset int64) (int, error) {
	const step = MaxFrame / 2
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	done := 0
	for done < len(p) {
		part := p[done:min(len(p), done+step)]
		s.buf = append(s.buf[:0], make([]byte, FrameHeader)...)
		s.buf = append(binary.BigEndian.AppendUint64(s.buf, uint64(offset+int64(done))), part...)
		PutFrameHeader(s.buf, FrameStdinAt, len(s.buf)-FrameHeader)
		if _, err := s.stdin.Write(s.buf); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// CloseStdin ends the stdin of the process. It is idempotent.
func (s *Stream) CloseStdin() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.buf = AppendFrame(s.buf[:0], FrameEOF, nil)
	if _, err := s.stdin.Write(s.buf); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return s.stdin.Close()
}

// Resize sets the size of the process's terminal; CodeInvalid when it has none.
func (s *Stream) Resize(size Size) error {
	return s.client.Resize(s.ctx, s.started.ID, size)
}

// Signal sends a signal to the process; see [Client.Signal].
func (s *Stream) Signal(signal int) error {
	return s.client.Signal(s.ctx, s.started.ID, signal)
}

// Close detaches from the process. It does not end the process, but see [Command].Detach. Calls in
// progress fail. It is idempotent.
func (s *Stream) Close() error {
	if s.onClose != nil {
		s.onClose()
	}
	s.answer.close()
	s.stdin.CloseWithError(io.ErrClosedPipe)
	return nil
}
