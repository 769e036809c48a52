package execution

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

const (
	// callTimeout bounds a call to an agent.
	callTimeout = 5 * time.Second
	// answerTimeout is the default of Config.answerTimeout.
	answerTimeout = 2 * time.Minute
	// idleConnections is how many connections in a row may break without a byte of
	// output, although the sandbox was not saved, until the agent is not believed
	// any more. One that held for as long as answerTimeout was good.
	idleConnections = 20
)

// pump copies the output of an execution from the agent into the execution's streams.
type pump struct {
	service *Service
	x       *execution
	stdout  *stream.Writer
	stderr  *stream.Writer // the same as stdout when combined
}

// execute runs an execution until it has ended or the service closes.
func (s *Service) execute(x *execution) {
	defer x.dropRequest()
	if x.typed != nil {
		defer x.typed.End()
	}
	p, err := s.openPump(x)
	if err != nil {
		s.log.Error("execution has no streams", "execution", x.view().ID, "error", err)
		s.fail(x, "the server could not write its output")
		return
	}
	exit, err := p.run()
	switch {
	case s.ctx.Err() != nil:
		p.close() // the next server goes on
		return
	case err != nil:
		s.finish(x, p, func(e *sandbox.Execution) {
			if e.Error != "" { // its sandbox ended it
				e.State = sandbox.ExecutionCancelled
				return
			}
			e.State, e.Error = sandbox.ExecutionFailed, sandbox.OneLine(publicMessage(err))
			if errors.Is(err, errNotStarted) {
				e.State, e.Error = sandbox.ExecutionCancelled, ""
			}
		})
	default:
		s.finish(x, p, func(e *sandbox.Execution) { judge(e, exit) })
	}
}

// errNotStarted means that the execution was canceled before it started.
var errNotStarted = errors.New("canceled before it started")

// limitNames are the names of limits in messages.
var limitNames = map[agentapi.LimitName]string{
	agentapi.LimitMemory: "memory", agentapi.LimitCPU: "processor time",
	agentapi.LimitFileSize: "file size", agentapi.LimitProcesses: "processes",
}

// judge records how an execution's process ended.
func judge(e *sandbox.Execution, exit *agentapi.Exit) {
	code := exit.Code
	e.ExitCode, e.Duration, e.LimitExceeded = &code, exit.Duration, string(exit.Limit)
	switch {
	case exit.Limit != "" && code != 0:
		e.State, e.Error = sandbox.ExecutionFailed, "it exceeded its limit of "+limitNames[exit.Limit]
	case exit.TimedOut:
		e.State = sandbox.ExecutionTimeout
	case e.Cancel != sandbox.CancelNone:
		e.State = sandbox.ExecutionCancelled
	case e.Kind == sandbox.Job && code != 0:
		e.State = sandbox.ExecutionFailed
	default:
		e.State = sandbox.ExecutionCompleted
	}
}

// publicMessage returns the part of an error that callers may see.
func publicMessage(err error) string {
	var public *sandbox.Error
	if errors.As(box.AgentError(err), &public) && public.Code != sandbox.Internal {
		return public.Message
	}
	return "a fault of the server; its log says more"
}

// fail ends an execution whose result is unknown.
func (s *Service) fail(x *execution, message string) {
	e := x.view().Execution
	for _, ref := range outputs(&e) {
		if w, err := s.streams.Writer(ref.ID); err == nil {
			_ = w.End() // nobody can be told, and nothing was lost
		}
	}
	s.finish(x, nil, func(e *sandbox.Execution) { e.State, e.Error = sandbox.ExecutionFailed, message })
}

// finish ends an execution: first its streams, then its record, then its sandbox if the sandbox was
// created for it.
func (s *Service) finish(x *execution, p *pump, end func(*sandbox.Execution)) {
	id := x.view().ID
	if p != nil {
		p.end()
	}
	s.audit.ended(s.ctx, x)
	err := retry.Persist(s.ctx, s.log.With("sandbox", x.box.ID), "record end of execution", func() error {
		err := s.change(s.ctx, x, func(e *sandbox.Execution) {
			now := time.Now().UTC()
			*e = s.measured(*e)
			end(e)
			e.EndedAt = now
		})
		if code := sandbox.CodeOf(err); code == sandbox.Ended || code == sandbox.NotFound {
			return nil // an earlier attempt worked, or the row is gone
		}
		return err
	})
	if err != nil {
		return // the service closes; the next server finds it running
	}
	s.live.remove(id)
	e := x.view().Execution
	s.noteExecution(&e)
	s.stored.Wake()
	if e.OneShot {
		s.sandboxes.End(x.box, sandbox.Cause{Code: sandbox.CauseCompleted, Message: "its command has ended"})
	}
}

// noteExecution queues the event that an execution ended.
func (s *Service) noteExecution(e *sandbox.Execution) {
	data := map[string]string{
		"program": sandbox.OneLine(e.Argv[0]), "execution_id": string(e.ID), "kind": string(e.Kind), "state": string(e.State),
		"duration_ms": strconv.FormatInt(e.Duration.Milliseconds(), 10),
	}
	if e.ExitCode != nil {
		data["exit_code"] = strconv.Itoa(*e.ExitCode)
	}
	if e.LimitExceeded != "" {
		data["limit_exceeded"] = e.LimitExceeded
	}
	ev := sandbox.Event{
		Sandbox: e.Sandbox, Time: e.EndedAt, Type: sandbox.EventExec, Data: data,
		Message: fmt.Sprintf("an execution ended: %s", e.State),
	}
	s.sandboxes.Note(s.ctx, ev)
}

func (s *Service) openPump(x *execution) (*pump, error) {
	e := x.view()
	out, err := s.streams.Writer(e.Stdout.ID)
	if err != nil {
		return nil, err
	}
	p := &pump{service: s, x: x, stdout: out, stderr: out}
	if e.Stderr.ID != e.Stdout.ID {
		if p.stderr, err = s.streams.Writer(e.Stderr.ID); err != nil {
			_ = out.Close() // nothing was written
			return nil, err
		}
	}
	return p, nil
}

// each calls f for every stream of p.
func (p *pump) each(f func(*stream.Writer) error) {
	err := f(p.stdout)
	if p.stderr != p.stdout {
		err = errors.Join(err, f(p.stderr))
	}
	if err != nil {
		p.service.log.Error("stream of an execution", "execution", p.x.view().ID, "error", err)
	}
}

func (p *pump) close() { p.each((*stream.Writer).Close) }
func (p *pump) end()   { p.each((*stream.Writer).End) }

// offset returns how many bytes of the process's output are in the streams.
func (p *pump) offset() int64 {
	if p.stderr == p.stdout {
		return p.stdout.Offset()
	}
	return p.stdout.Offset() + p.stderr.Offset()
}

// run connects to the process, and connects again when the connection breaks, until the process
// exits. While the sandbox is paused, run waits and does not resume it.
func (p *pump) run() (*agentapi.Exit, error) {
	ctx := p.x.box.Context()
	for idle := 0; idle < idleConnections; idle++ {
		before, saves := p.offset(), p.x.box.Saves()
		conn, err := p.connect(ctx)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		exit, err := p.copy(ctx, conn)
		if exit != nil {
			return exit, nil
		}
		var coded *sandbox.Error
		if errors.As(err, &coded) && coded.Code == sandbox.Conflict {
			return nil, err // its stream is closed: it was ended by somebody else
		}
		if p.x.typed != nil {
			if err := p.x.typed.Failed(); err != nil {
				p.terminate(ctx)
				return nil, err
			}
		}
		if p.offset() > before || p.x.box.SavedSince(saves) || time.Since(begin) > answerTimeout {
			idle = 0
		}
	}
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	return nil, sandbox.Errorf(sandbox.AgentUnreachable, "the connection to the sandbox's agent broke again and again")
}

// terminate ends a process whose output is no longer read, if the agent can be reached.
func (p *pump) terminate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = p.x.box.Agent.Terminate(ctx, processID(&p.x.view().Execution), cancelGrace)
}

// ready waits until the sandbox runs. It fails when the sandbox has ended, when a pause without memory has ended the
// process, or when the service closes.
func (p *pump) ready(ctx context.Context) error {
	for {
		v := p.x.box.View()
		switch {
		case p.service.ctx.Err() != nil:
			return box.ErrClosed
		case v.Sandbox.State == sandbox.Running && ctx.Err() == nil:
			return nil
		case v.Sandbox.State == sandbox.Destroying || v.Sandbox.State.Ended():
			return box.StateError(&v.Sandbox)
		case v.Sandbox.State == sandbox.Paused && v.Sandbox.FilesOnly && p.x.view().Error == pausedWithout:
			return errLost
		}
		select {
		case <-v.Changed:
		case <-p.service.ctx.Done():
		}
	}
}

// connect connects to the process, and starts it with the first connection.
func (p *pump) connect(ctx context.Context) (*agentapi.Stream, error) {
	for {
		if err := p.ready(ctx); err != nil {
			return nil, err
		}
		v, saves := p.x.box.View(), p.x.box.Saves()
		conn, err := backoff.Retry(ctx, func() (*agentapi.Stream, error) {
			if now := p.x.box.View(); now != v && now.Sandbox.State != sandbox.Running {
				return nil, backoff.Permanent(errStopped)
			}
			conn, err := p.attempt(ctx)
			var refused *agentapi.Error
			if errors.As(err, &refused) && !p.crowded(refused) || errors.Is(err, errNotStarted) || sandbox.CodeOf(err) == sandbox.CodeBlocked {
				err = backoff.Permanent(err)
			}
			return conn, err
		}, retry.Pauses(10*time.Millisecond, time.Second), backoff.WithMaxElapsedTime(p.service.cfg.AnswerTimeout))
		var refused *agentapi.Error
		switch {
		case err == nil:
			return conn, nil
		case errors.As(err, &refused) && refused.Code == agentapi.CodeNotFound && p.x.view().State == sandbox.ExecutionQueued && p.x.request == nil:
			return nil, sandbox.Errorf(sandbox.Unavailable, "the server was restarted before the command was started")
		case errors.As(err, &refused) && p.crowded(refused):
			continue
		case errors.Is(err, driver.ErrAway) && p.x.view().State != sandbox.ExecutionQueued: // the process may run on
			continue
		case errors.As(err, &refused), errors.Is(err, errNotStarted), sandbox.CodeOf(err) == sandbox.CodeBlocked:
			return nil, err
		}
		if stateErr := p.ready(ctx); stateErr != nil {
			return nil, stateErr
		}
		// It may have stood still for long, to be saved.
		stood := p.x.box.SavedSince(saves) && box.NoAnswer(err)
		if p.x.box.View() == v && !stood { // it ran all the time
			return nil, err
		}
	}
}

// crowded reports whether the agent refused a connection because of other calls, of this process or
// of others. The process then runs on, its output waits, and no output is lost.
func (p *pump) crowded(refused *agentapi.Error) bool {
	return refused.Code == agentapi.CodeTooMany && p.x.view().State != sandbox.ExecutionQueued
}

// errStopped means that the sandbox no longer runs.
var errStopped = errors.New("the sandbox does not run")

// attempt tries to connect once.
func (p *pump) attempt(ctx context.Context) (*agentapi.Stream, error) {
	e := p.x.view()
	if p.x.lost.Load() {
		return nil, errLost
	}
	if e.State != sandbox.ExecutionQueued || p.x.request == nil {
		conn, err := p.x.box.Agent.Attach(ctx, processID(&e.Execution), p.offset())
		return conn, err
	}
	if e.Cancel != sandbox.CancelNone {
		return nil, errNotStarted
	}
	if err := p.review(ctx); err != nil {
		return nil, err
	}
	if req := p.x.request; req.MakeCwd {
		if err := p.x.box.Agent.Mkdir(ctx, agentapi.MkdirRequest{Path: req.Cwd, Parents: true, User: req.User}); err != nil {
			return nil, err
		}
	}
	if err := p.writeFiles(ctx); err != nil {
		return nil, err
	}
	sb := p.x.box.Sandbox()
	conn, err := p.x.box.Agent.Exec(ctx, p.x.request.command(&e.Execution, &sb, bash))
	var refused *agentapi.Error
	if errors.As(err, &refused) && refused.Code == agentapi.CodeNoProgram && p.x.request.Script != "" {
		conn, err = p.x.box.Agent.Exec(ctx, p.x.request.command(&e.Execution, &sb, sh))
	}
	return conn, err
}

// writeFiles writes the request's files. It can be repeated.
func (p *pump) writeFiles(ctx context.Context) error {
	req := p.x.request
	dir := ""
	for _, f := range req.Files {
		opts := agentapi.WriteOptions{Parents: true, User: req.User}
		name := f.Path
		if !path.IsAbs(name) {
			if dir == "" {
				var err error
				if dir, err = p.workingDir(ctx); err != nil {
					return err
				}
			}
			name = path.Join(dir, name)
		}
		if _, err := p.x.box.Agent.WriteFile(ctx, name, bytes.NewReader(f.Content), opts); err != nil {
			var refused *agentapi.Error
			if errors.As(err, &refused) {
				return &agentapi.Error{Code: refused.Code, Message: "write " + f.Path + ": " + refused.Message}
			}
			return err
		}
	}
	return nil
}

// workingDir returns the directory that relative paths of the request's files start from.
func (p *pump) workingDir(ctx context.Context) (string, error) {
	if dir := p.x.request.Cwd; dir != "" {
		return dir, nil
	}
	img, err := p.service.images.Lookup(ctx, p.x.box.View().Sandbox.ImageDigest)
	if err != nil {
		return "", backoff.Permanent(err)
	}
	return cmp.Or(img.Config.WorkingDir, "/"), nil
}

// copy moves output into the streams until the process exits or an error occurs.
func (p *pump) copy(ctx context.Context, conn *agentapi.Stream) (*agentapi.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = conn.Close() }() // nothing was written that could be lost
	if err := p.connected(conn); err != nil {
		return nil, err
	}
	defer p.x.connect(nil)
	if id := p.x.view().Stdin; id != "" {
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			p.feed(ctx, conn, id)
		}()
		defer func() {
			cancel()
			_ = conn.Close()
			<-fed
		}()
	}
	for {
		f, err := conn.Next()
		if err != nil {
			return nil, err
		}
		switch f.Type {
		case agentapi.FrameStdout:
			_, err = p.stdout.Write(f.Data)
		case agentapi.FrameStderr:
			_, err = p.stderr.Write(f.Data)
		case agentapi.FrameExit:
			return f.Exit, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// connected records a connection; the first connection also records that the process runs.
func (p *pump) connected(conn *agentapi.Stream) error {
	s, x := p.service, p.x
	if x.view().State == sandbox.ExecutionQueued {
		err := retry.Persist(s.ctx, s.log.With("sandbox", x.box.ID), "record start of execution", func() error {
			return s.change(s.ctx, x, func(e *sandbox.Execution) {
				e.State, e.StartedAt = sandbox.ExecutionRunning, time.Now().UTC()
			})
		})
		if err != nil {
			return err
		}
		x.dropRequest()
	}
	x.connect(conn)
	if x.typed != nil {
		x.typed.Follow(conn)
	}
	if x.view().Cancel != sandbox.CancelNone {
		s.work.Go(func() { s.signalCancel(x) })
	}
	return nil
}

// connect sets the present connection, which may be nil, and wakes goroutines that wait for a
// connection.
func (x *execution) connect(conn *agentapi.Stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stream = conn
	x.set(x.view().Execution)
}

// feed sends an input stream to the process, from the byte that the agent needs next, until the
// stream or the connection ends.
func (p *pump) feed(ctx context.Context, conn *agentapi.Stream, id sandbox.StreamID) {
	offset := conn.StdinOffset()
	r, _, err := p.service.streams.Reader(ctx, id, offset, true)
	if err != nil {
		// Without its input the process is as good as with an empty one.
		p.service.log.Warn("input of an execution cannot be read", "execution", p.x.view().ID, "error", err)
		_ = conn.CloseStdin()
		return
	}
	defer func() { _ = r.Close() }() // it was only read
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := conn.WriteAt(buf[:n], offset); err != nil {
				return
			}
			offset += int64(n)
		}
		if err == io.EOF {
			_ = conn.CloseStdin() // fails only with the connection
			return
		}
		if err != nil {
			return
		}
	}
}
