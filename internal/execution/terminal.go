package execution

import (
	"context"
	"io"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Terminal is a caller's connection to an execution: its input and its terminal's
// size. Its output is in its streams. It is safe for concurrent use and needs no closing.
type Terminal struct {
	service *Service
	x       *execution // nil when it has ended
	// Execution is as it was when the terminal was opened.
	Execution sandbox.Execution
}

// Terminal connects to an execution, which may have ended. When it has not, a
// paused sandbox is resumed. Errors: NotFound; the errors of every call into a sandbox.
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

// connected waits until there is a connection to the process, which is not about
// to break.
func (t *Terminal) connected(ctx context.Context) error {
	if t.x != nil {
		if err := t.x.box.Settled(ctx); err != nil {
			return err
		}
	}
	for t.x != nil {
		v := t.x.view()
		t.x.mu.Lock()
		conn := t.x.stream
		t.x.mu.Unlock()
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

// Write types p on the process's terminal, in the order of the calls. It returns
// before the process has read it, and blocks when that is far behind. Nothing is
// lost or doubled when the connection to the sandbox breaks, for a pause or a
// checkpoint; going back to a checkpoint drops what was not read.
// Errors: Conflict when the execution has ended or has no terminal; Unavailable;
// the context's error.
func (t *Terminal) Write(ctx context.Context, p []byte) error {
	if !t.Execution.TTY {
		return sandbox.Errorf(sandbox.Conflict, "the execution has no terminal: write to its stdin stream")
	}
	if t.x == nil {
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

// Resize tells the terminal its size. Errors: Conflict when it has ended;
// Invalid when it has no terminal; the context's error.
func (t *Terminal) Resize(ctx context.Context, size agentapi.Size) error {
	if err := t.connected(ctx); err != nil {
		return err
	}
	return box.AgentError(t.x.box.Agent.Resize(ctx, string(t.Execution.ID), size))
}

// Signal sends a signal to the process and its group. Errors: Conflict when it
// has ended; Invalid for a number that is no signal; the context's error.
func (t *Terminal) Signal(ctx context.Context, signal int) error {
	if err := t.connected(ctx); err != nil {
		return err
	}
	return box.AgentError(t.x.box.Agent.Signal(ctx, string(t.Execution.ID), signal))
}
