package envd

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"github.com/modbox/modbox/internal/agentapi"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/process"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// readersMax bounds the clients that read the output of one process.
const readersMax = 64

// session is the server's connection to a process. It passes the output on to all who read it, and
// reads on while nobody does, because a process outlives the client that started it. A client that
// does not take its output stops the process, as a full pipe would.
type session struct {
	command *guest.Command
	pid     uint32
	config  *pb.ProcessConfig
	tag     *string
	pty     bool
	stdin   bool // it takes input
	started bool // the process began with it

	mu      sync.Mutex
	readers map[*reader]struct{} // guarded by mu
	over    bool                 // guarded by mu; the process, or the connection to it, has ended: there are no more readers
	failed  error                // guarded by mu; why the connection ended before the process
}

// reader is one client that reads output.
type reader struct {
	events chan *pb.ProcessEvent
	gone   chan struct{} // closed when nobody takes events any more
}

// subscribe adds a reader of the output that follows. Errors: NotFound when the session is over;
// QuotaExceeded.
func (s *session) subscribe() (*reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, noProcess()
	case len(s.readers) >= readersMax:
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "%d clients already read the output of process %d", readersMax, s.pid)
	}
	r := &reader{events: make(chan *pb.ProcessEvent), gone: make(chan struct{})}
	s.readers[r] = struct{}{}
	return r, nil
}

// leave removes a reader, once.
func (s *session) leave(r *reader) {
	close(r.gone)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// publish passes an event on to all readers, until ctx ends. No reader is added after the last event.
func (s *session) publish(ctx context.Context, e *pb.ProcessEvent, last bool) {
	s.mu.Lock()
	s.over = s.over || last
	readers := slices.Collect(maps.Keys(s.readers))
	s.mu.Unlock()
	for _, r := range readers {
		select {
		case r.events <- e:
		case <-r.gone:
		case <-ctx.Done():
			return
		}
	}
}

// pump passes the output on until the end of the process, or of ctx.
func (s *session) pump(ctx context.Context) {
	defer s.command.Close() //nolint:errcheck // it has ended
	for {
		f, err := s.command.Next()
		if err != nil {
			s.end(err)
			return
		}
		switch f.Type {
		case agentapi.FrameStdout, agentapi.FrameStderr:
			s.publish(ctx, s.data(f.Type, bytes.Clone(f.Data)), false)
		case agentapi.FrameExit:
			if f.Exit.TimedOut {
				s.end(sandbox.Errorf(sandbox.Timeout, "the time limit of process %d has passed", s.pid))
				return
			}
			s.publish(ctx, endEvent(f.Exit), true)
		}
	}
}

// isOver reports whether the process, or the connection to it, has ended.
func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// end ends the session with the error of its command; io.EOF is a good end.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if err != io.EOF {
		s.failed = err
	}
	for r := range s.readers {
		close(r.events)
	}
}

func (s *session) data(frame agentapi.FrameType, p []byte) *pb.ProcessEvent {
	d := &pb.ProcessEvent_DataEvent{}
	switch {
	case s.pty:
		d.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: p}
	case frame == agentapi.FrameStderr:
		d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: p}
	default:
		d.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: p}
	}
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}}
}

// follow sends the start of the process and then its events, until its end or the end of ctx.
func (s *session) follow(ctx context.Context, r *reader, silence keepalive, send func(*pb.ProcessEvent) error) error {
	defer s.leave(r)
	if err := send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: s.pid}}}); err != nil {
		return err
	}
	timer := silence.begin()
	defer timer.Stop()
	for {
		var e *pb.ProcessEvent
		var open bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			e, open = &pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}, true
		case e, open = <-r.events:
		}
		if !open {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.failed
		}
		if err := send(e); err != nil {
			return err
		}
		timer.Reset(silence.interval)
	}
}

// noProcess is the error for a process that does not run.
func noProcess() error {
	return connect.NewError(connect.CodeNotFound, sandbox.Errorf(sandbox.NotFound, "process not found"))
}
