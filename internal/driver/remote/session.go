package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/libp2p/go-yamux/v5"
	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// maxStreams bounds the streams of a connection. It is the sum of what may use them, so that no use keeps another
	// from its streams. Each takes at most [window] bytes of memory for what nobody reads.
	maxStreams = maxDials + maxAgentDials + maxWaits + maxLinks + maxBodies + maxStages + maxTransfersAtOnce + maxSavesAtOnce + maxCalls + maxEnding
	// maxDials and maxAgentDials bound connections into boxes, to their servers and to their agents, and maxBoxDials the
	// share of one box in each.
	maxDials, maxAgentDials, maxBoxDials = 1536, 1536, 256
	// maxWaits and maxLinks bound running boxes and their interfaces, and maxBodies layers that are sent.
	maxWaits, maxLinks, maxBodies = 2048, 2048, 256
	// maxStages bounds the files that are staged at the same time. maxTransfersAtOnce and maxSavesAtOnce are the transfers to the
	// worker and the saves at the same time, which workspaces share: each gets the connection's share of one.
	maxStages, maxTransfersAtOnce, maxSavesAtOnce = 1024, 4, 8
	// maxKept bounds the checkpoints of workspaces among the staged files.
	maxKept = 16
	// maxCalls bounds the other calls in progress.
	maxCalls = 768
	// maxEnding is for streams that have ended here and not yet at the worker.
	maxEnding = 512
	window    = 256 << 10
	// keepAlive is how often a silent connection is tried. Without an answer within writeTimeout it is lost.
	keepAlive    = 5 * time.Second
	writeTimeout = 10 * time.Second
	// helloTimeout bounds the beginning of a connection. The worker ends what it did for the one before.
	helloTimeout = time.Minute
	// lingerTimeout bounds the delivery of what was written to a closed connection.
	lingerTimeout = 2 * time.Second
)

// cancelTimeout bounds the wait for the answer to a call whose context has ended, and for the end of a box that was saved.
var cancelTimeout = 30 * time.Second

// muxConfig is the configuration of both sides, whose peers may open streams.
func muxConfig(streams uint32) *yamux.Config {
	c := yamux.DefaultConfig()
	c.MaxIncomingStreams, c.AcceptBacklog = streams, 256
	c.InitialStreamWindowSize, c.MaxStreamWindowSize = window, window
	c.KeepAliveInterval, c.ConnectionWriteTimeout = keepAlive, writeTimeout
	c.ReadBufSize = 64 << 10
	c.LogOutput = io.Discard // errors are returned as well
	return c
}

// errLost is the error of a call whose answer did not arrive.
var errLost = errors.New("the connection to the worker was lost")

// errNotSent is the error of a call that the worker did not receive.
var errNotSent = fmt.Errorf("%w before the call", errLost)

// session is a connection to a worker.
type session struct {
	mux      *yamux.Session
	instance string              // of the worker's driver
	calls    *semaphore.Weighted // maxCalls
}

func newSession(conn net.Conn) (*session, error) {
	mux, err := yamux.Server(conn, muxConfig(0), nil)
	if err != nil {
		return nil, fmt.Errorf("multiplex: %w", err)
	}
	return &session{mux: mux, calls: semaphore.NewWeighted(maxCalls)}, nil
}

// open begins a call, and returns its stream and the worker's answer; without an answer it is nil. When ctx ends it
// tells the worker, and waits for the answer. The stream outlives ctx. Errors: errLost; errNotSent; the cause of
// the end of ctx; the worker's.
func (s *session) open(ctx context.Context, req *request) (*yamux.Stream, *response, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	switch req.Op {
	case opDial, opWait, opPlug, opStage, opImage, opCheckpoint: // have limits of their own
	default:
		if s.calls.Acquire(ctx, 1) != nil {
			return nil, nil, context.Cause(ctx)
		}
		defer s.calls.Release(1)
	}
	stream, err := s.mux.OpenStream(ctx) // waits while the worker accepts none
	if errors.Is(err, yamux.ErrStreamsExhausted) {
		_ = s.mux.Close() // its numbers are used up; the worker makes another
	}
	if err != nil && ctx.Err() != nil && !s.mux.IsClosed() {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, errNotSent
	}
	answered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = stream.CloseWrite()
		select {
		case <-time.After(cancelTimeout):
			_ = stream.Reset()
		case <-answered:
		}
	})
	answer := &response{}
	if err = writeMessage(stream, req); err == nil {
		err = readMessage(stream, answerLimit(req.Op), answer)
	}
	close(answered)
	canceled := !stop()
	switch {
	case err != nil && ctx.Err() != nil && !s.mux.IsClosed():
		answer, err = nil, context.Cause(ctx)
	case err != nil:
		answer, err = nil, errLost
	case answer.Error != nil:
		if err = answer.Error.decode(); isContext(err) {
			err = errLost // the worker ends
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
		}
	case canceled && (req.Op == opDial || req.Op == opPlug):
		err = context.Cause(ctx) // the stream cannot be used
	default:
		return stream, answer, nil
	}
	_ = stream.Reset()
	return nil, answer, err
}

// call makes a call that has one answer. Errors: as open.
func (s *session) call(ctx context.Context, req *request) (*response, error) {
	stream, answer, err := s.open(ctx, req)
	if err != nil {
		return answer, err
	}
	_ = stream.Close()
	return answer, nil
}

// overTimeout bounds the time from a lost call to the end of its connection.
const overTimeout = 5 * time.Second

// over reports whether the connection of a lost call is over. Otherwise it has too many streams.
func (s *session) over(ctx context.Context) bool {
	select {
	case <-s.mux.CloseChan():
		return true
	case <-ctx.Done():
	case <-time.After(overTimeout):
	}
	return s.mux.IsClosed()
}

// isContext reports whether err is an error of a context and nothing more.
func isContext(err error) bool {
	var coded *sandbox.Error
	return (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !errors.As(err, &coded)
}
