package execution

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

// CreateStream creates an input stream for a later command. [Service.WriteStdin] accepts it at
// once. Errors: Unsupported; QuotaExceeded if the user has too many unused input streams.
func (s *Service) CreateStream(ctx context.Context, c sandbox.Caller) (sandbox.StreamID, error) {
	if s.streams == nil {
		return "", sandbox.Errorf(sandbox.Unsupported, "this server keeps no streams")
	}
	id := sandbox.NewStreamID()
	err := s.inputs.add(id, c, time.Now(), s.cfg.Retention)
	if sandbox.CodeOf(err) == sandbox.QuotaExceeded && s.owner.Part() != "" { // commands on other servers may read them by now
		used, lerr := s.store.StreamOwners(ctx)
		if lerr != nil {
			return "", lerr
		}
		for id := range used {
			s.inputs.used(id)
		}
		err = s.inputs.add(id, c, time.Now(), s.cfg.Retention)
	}
	if err != nil {
		return "", err
	}
	return id, s.streams.Create(id, sandbox.StdinMax)
}

// inputs are the input streams that no command uses yet. No row names them, so this type bounds how
// many a user has, in all workspaces together.
type inputs struct {
	mu   sync.Mutex
	made map[sandbox.StreamID]waitingInput // guarded by mu
}

type waitingInput struct {
	of sandbox.Caller
	at time.Time
}

// add records an input stream, and discards records older than kept, whose streams Purge removes.
// Errors: QuotaExceeded.
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

// owner returns the workspace of an input stream; "" if it is unknown.
func (x *inputs) owner(id sandbox.StreamID) sandbox.WorkspaceID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.made[id].of.Workspace
}

// used removes an input stream that a command now reads.
func (x *inputs) used(id sandbox.StreamID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.made, id)
}

// OpenStream opens a stream at a byte offset. Knowing the id gives access; there is no caller to
// check. With follow, reads wait for further output until the stream ends; without follow, they end
// at the present end. Closing the reader or ending ctx ends a waiting read. Errors: NotFound;
// Invalid, naming offset.
func (s *Service) OpenStream(ctx context.Context, id string, offset int64, follow bool) (io.ReadCloser, sandbox.StreamInfo, error) {
	return s.openStream(ctx, id, offset, follow, false)
}

// OpenStreamTimes is OpenStream with the time of each line before the line.
func (s *Service) OpenStreamTimes(ctx context.Context, id string, offset int64, follow bool) (io.ReadCloser, sandbox.StreamInfo, error) {
	return s.openStream(ctx, id, offset, follow, true)
}

func (s *Service) openStream(ctx context.Context, id string, offset int64, follow, times bool) (io.ReadCloser, sandbox.StreamInfo, error) {
	if s.streams == nil {
		return nil, sandbox.StreamInfo{}, sandbox.Errorf(sandbox.NotFound, "there is no such stream")
	}
	r, info, err := s.streams.Reader(ctx, sandbox.StreamID(id), offset, follow)
	if elsewhere := s.owner.CheckStream(sandbox.StreamID(id)); elsewhere != nil && (err != nil || !info.Ended) {
		if err == nil {
			_ = r.Close() // it was only read
		}
		return nil, info, elsewhere
	}
	if sandbox.CodeOf(err) == sandbox.NotFound {
		if err = s.stored.Fetch(ctx, sandbox.StreamID(id)); err == nil {
			r, info, err = s.streams.Reader(ctx, sandbox.StreamID(id), offset, follow)
		}
	}
	if err != nil {
		return nil, info, err
	}
	if times {
		return s.streams.Timestamped(r), info, nil
	}
	return r, info, nil
}

// WriteStdin appends the content of r to an input stream as it arrives. Knowing the id gives
// access; there is no caller to check. It returns at the end of r; the stream stays open until
// [Service.CloseStdin].
//
// Errors: NotFound; Conflict if the stream has ended, is an output, or another call is writing to
// it; TooLarge, DiskFull; errors of r.
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
		if free := w.Free(); int64(n) > free {
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

// CloseStdin ends an input stream, and thereby the stdin of the command that reads it. It may be
// called again. Errors: NotFound; Conflict if the stream is an output or a call is writing to it.
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
	if err := s.owner.CheckStream(sandbox.StreamID(id)); err != nil {
		return nil, err
	}
	w, err := s.streams.Writer(sandbox.StreamID(id))
	if err == nil && w.Ended() {
		_ = w.Close() // nothing was written
		return nil, sandbox.Errorf(sandbox.Conflict, "the stream has ended")
	}
	return w, err
}
