package execution

import (
	"context"
	"io"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Terminal is a connection to the input of an execution and to the size of its terminal. The output
// is in the execution's streams. It is safe for concurrent use and needs no Close.
type Terminal struct {
	service *Service
	x       *execution // nil when it has ended
	// Execution is as it was when the terminal was opened.
	Execution sandbox.Execution
}

// Terminal connects to an execution, which may have ended. If the execution runs, Terminal resumes
// a paused sandbox. Errors: NotFound; the errors of every call into a sandbox.
func (s *Service) Terminal(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID) (*Terminal, error) {
	x, e, err := s.findExecution(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if x != nil {
		if _, err := s.guest.Use(ctx, c, string(e.Sandbox)); err != nil && sandbox.CodeOf(err) != sandbox.NotRunning {
			return nil, err
		}
	}
	return &Terminal{service: s, x: x, Execution: s.measured(e)}, nil
}

// connected waits for a connection to the process that no save is about to break.
func (t *Terminal) connected(ctx context.Context) error {
	if t.x != nil {
		if err := t.x.box.Settled(ctx); err != nil {
			return err
		}
	}
	for t.x != nil {
		v := t.x.view()
		conn := t.x.connection()
		if conn != nil {
			return nil
		}
		if v.State.Ended() {
			break
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.service.ctx.Done():
			return box.ErrClosed
		}
	}
	return errExecutionEnded
}

// Write sends p to the process's terminal, in the order of the calls. It returns before the process
// has read p, and blocks while much input is unread. A connection that breaks because of a pause or
// a checkpoint loses and repeats no input; a return to a checkpoint discards unread input. Errors:
// Conflict if the execution has ended or has no terminal; Unavailable; the context's error.
func (t *Terminal) Write(ctx context.Context, p []byte) error {
	if !t.Execution.TTY {
		return sandbox.Errorf(sandbox.Conflict, "the execution has no terminal: write to its stdin stream")
	}
	if t.x == nil || t.x.view().State.Ended() { // recorded, before the input is closed
		return errExecutionEnded
	}
	_, err := t.x.typed.Write(ctx, p)
	switch {
	case err == io.ErrClosedPipe && t.service.ctx.Err() != nil:
		return box.ErrClosed
	case err == io.ErrClosedPipe:
		return errExecutionEnded
	default:
		return err
	}
}

var errExecutionEnded = sandbox.Errorf(sandbox.Conflict, "the execution has ended")

// Resize sets the size of the terminal. Errors: Conflict if the execution has ended; Invalid if it
// has no terminal; the context's error.
func (t *Terminal) Resize(ctx context.Context, size agentapi.Size) error {
	if err := t.connected(ctx); err != nil {
		return err
	}
	return box.AgentError(t.x.box.Agent.Resize(ctx, processID(&t.Execution), size))
}

// Signal sends a signal to the process and its group. Errors: Conflict if the execution has ended;
// Invalid for an unknown signal number; the context's error.
func (t *Terminal) Signal(ctx context.Context, signal int) error {
	if err := t.connected(ctx); err != nil {
		return err
	}
	return box.AgentError(t.x.box.Agent.Signal(ctx, processID(&t.Execution), signal))
}
