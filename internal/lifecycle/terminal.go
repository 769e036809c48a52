package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/agentapi"
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
// paused sandbox is resumed. Errors: NotFound; those of every call into a sandbox.
func (s *Service) Terminal(ctx context.Context, c Caller, id sandbox.ExecutionID) (*Terminal, error) {
	x, e, err := s.findExecution(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if x != nil {
		if _, err := s.use(ctx, c, string(e.Sandbox)); err != nil && sandbox.CodeOf(err) != sandbox.NotRunning {
			return nil, err
		}
	}
	return &Terminal{service: s, x: x, Execution: s.measured(e)}, nil
}

// connection waits until there is a connection to the process.
func (t *Terminal) connection(ctx context.Context) (*agentapi.Stream, error) {
	for t.x != nil {
		v := t.x.view()
		t.x.mu.Lock()
		conn := t.x.stream
		t.x.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		if v.State.Ended() {
			break
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.service.ctx.Done():
			return nil, errClosed
		}
	}
	return nil, sandbox.Errorf(sandbox.Conflict, "the execution has ended")
}

// Write gives p to the process's terminal. It blocks while the process does not
// read. What was on its way when the connection to the sandbox broke is lost.
// Errors: Conflict when it has ended or has no terminal; Unavailable.
func (t *Terminal) Write(ctx context.Context, p []byte) error {
	if !t.Execution.TTY {
		return sandbox.Errorf(sandbox.Conflict, "the execution has no terminal: write to its stdin stream")
	}
	conn, err := t.connection(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Write(p)
	return AgentError(err)
}

// Resize tells the terminal its size. Errors: Conflict when it has ended;
// Invalid when it has no terminal.
func (t *Terminal) Resize(ctx context.Context, size agentapi.Size) error {
	conn, err := t.connection(ctx)
	if err != nil {
		return err
	}
	return AgentError(conn.Resize(size))
}

// Signal sends a signal to the process and its group. Errors: Conflict when it
// has ended; Invalid for a number that is no signal.
func (t *Terminal) Signal(ctx context.Context, signal int) error {
	conn, err := t.connection(ctx)
	if err != nil {
		return err
	}
	return AgentError(conn.Signal(signal))
}
