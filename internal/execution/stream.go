package execution

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

// CreateStream makes an input stream for a command that is to come. It can be
// written to at once, with [Service.WriteStdin]. Errors: Unsupported;
// QuotaExceeded when the user has too many that no command has been given.
func (s *Service) CreateStream(_ context.Context, c sandbox.Caller) (sandbox.StreamID, error) {
	if s.streams == nil {
		return "", sandbox.Errorf(sandbox.Unsupported, "this server keeps no streams")
	}
	id := sandbox.NewStreamID()
	if err := s.inputs.add(id, c, time.Now(), s.cfg.Retention); err != nil {
		return "", err
	}
	return id, s.streams.Create(id, sandbox.StdinMax)
}

// inputs are the input streams that no command has been given yet. No row names
// them, so that only this bounds how many a user, in whatever workspaces, has.
type inputs struct {
	mu   sync.Mutex
	made map[sandbox.StreamID]waitingInput // guarded by mu
}

type waitingInput struct {
	of sandbox.Caller
	at time.Time
}

// add notes one. Those older than kept are removed, or will be soon. Errors: QuotaExceeded.
func (x *inputs) add(id sandbox.StreamID, of sandbox.Caller, now time.Time, kept time.Duration) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for id, in := range x.made {
		switch {
		case now.Sub(in.at) > kept:
			delete(x.made, id)
		case in.of.User == of.User:
			n++
		}
	}
	if n >= sandbox.InputStreamsMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "you have %d input streams that no command has been given; give them to commands, or wait until they are forgotten", n)
	}
	x.made[id] = waitingInput{of, now}
	return nil
}

// owner returns the workspace of one; "" when it is not known.
func (x *inputs) owner(id sandbox.StreamID) sandbox.WorkspaceID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.made[id].of.Workspace
}

// used removes a stream that a command reads.
func (x *inputs) used(id sandbox.StreamID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.made, id)
}

// OpenStream opens a stream at a byte. The id gives access: there is no
// caller. With follow the reader waits for more until the stream ends, else it
// ends with what there is. Closing the reader, and the end of ctx, end a read
// that waits. Errors: NotFound; Invalid, naming offset.
func (s *Service) OpenStream(ctx context.Context, id string, offset int64, follow bool) (io.ReadCloser, sandbox.StreamInfo, error) {
	return s.openStream(ctx, id, offset, follow, false)
}

// OpenStreamTimes is OpenStream with the time at which a line came before every line.
func (s *Service) OpenStreamTimes(ctx context.Context, id string, offset int64, follow bool) (io.ReadCloser, sandbox.StreamInfo, error) {
	return s.openStream(ctx, id, offset, follow, true)
}

func (s *Service) openStream(ctx context.Context, id string, offset int64, follow, times bool) (io.ReadCloser, sandbox.StreamInfo, error) {
	if s.streams == nil {
		return nil, sandbox.StreamInfo{}, sandbox.Errorf(sandbox.NotFound, "there is no such stream")
	}
	r, info, err := s.streams.Reader(ctx, sandbox.StreamID(id), offset, follow)
	if err != nil {
		return nil, info, err
	}
	if times {
		return s.streams.Timestamped(r), info, nil
	}
	return r, info, nil
}

// WriteStdin appends what r holds to an input stream, as it comes. The id gives
// access: there is no caller. It returns when r has ended; the stream goes on
// until [Service.CloseStdin].
//
// Errors: NotFound; Conflict when the stream has ended, is an output, or is being
// written to by another call; TooLarge, DiskFull; r's.
func (s *Service) WriteStdin(_ context.Context, id string, r io.Reader) error {
	w, err := s.inputWriter(id)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // every write was whole
	buf := make([]byte, 32<<10)
	for {
		// A command must not read on behind bytes that are missing.
		if w.Lossy() {
			return sandbox.Errorf(sandbox.DiskFull, "bytes of the input stream were lost because the server's disk was full; start the command again")
		}
		n, err := r.Read(buf)
		if room := w.Room(); int64(n) > room {
			return sandbox.Errorf(sandbox.TooLarge, "an input stream holds at most %d bytes", int64(sandbox.StdinMax))
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if w.Lossy() {
			continue
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// CloseStdin ends an input stream: the command that reads it comes to the end of
// its input. Ending it twice is no error. Errors: NotFound; Conflict when it is
// an output or being written to.
func (s *Service) CloseStdin(_ context.Context, id string) error {
	if s.streams != nil {
		if info, err := s.streams.Info(sandbox.StreamID(id)); err == nil && info.Ended {
			return nil
		}
	}
	w, err := s.inputWriter(id)
	if err != nil {
		return err
	}
	return w.End()
}

func (s *Service) inputWriter(id string) (*stream.Writer, error) {
	if s.streams == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such stream")
	}
	w, err := s.streams.Writer(sandbox.StreamID(id))
	if err == nil && w.Ended() {
		_ = w.Close() // nothing was written
		return nil, sandbox.Errorf(sandbox.Conflict, "the stream has ended")
	}
	return w, err
}
