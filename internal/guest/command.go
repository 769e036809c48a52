package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Command is a command that runs in a sandbox for one caller. It continues when the sandbox is
// saved for a checkpoint or a fork: the save breaks its connection, Next connects again, and no
// byte of input or output is lost or doubled. One goroutine at a time calls Next, continually.
// All other methods may be called at any time.
type Command struct {
	calls   *Calls
	box     *box.Box
	ctx     context.Context // of the command's whole life
	command agentapi.Command
	handle  driver.Handle // of the box it was started in
	input   *Input        // nil when it takes none
	release func()        // ends its activity
	failed  error         // the error of each later Next
	begun   time.Time

	mu       sync.Mutex
	stream   *agentapi.Stream // guarded by mu; replaced by Next
	saves    int64            // guarded by mu; of the box, before stream was made
	reserved int64            // guarded by mu; bytes of its output that its caller holds, -1 when it is over
}

// Reserve counts n bytes of output that the caller keeps in memory until the command is closed.
// Errors: QuotaExceeded if the callers of the sandbox keep too much.
func (c *Command) Reserve(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reserved < 0 {
		return nil // nothing follows that could make it more
	}
	if err := c.box.Agent.Reserve(int64(n), true); err != nil {
		return box.AgentError(err)
	}
	c.reserved += int64(n)
	return nil
}

// startCommand starts cmd in a box that runs.
func (g *Calls) startCommand(ctx context.Context, b *box.Box, cmd agentapi.Command) (*Command, error) {
	if cmd.ID == "" {
		cmd.ID = rand.Text()
	}
	c := &Command{calls: g, box: b, ctx: ctx, command: cmd, handle: b.View().Sandbox.Handle, begun: time.Now()}
	if cmd.Stdin {
		var err error
		if c.input, err = NewInput(b.Agent, cmd.StdinReserved); err != nil {
			return nil, box.AgentError(err)
		}
	}
	c.begin()
	for {
		saves := b.Saves()
		stream, err := b.Agent.Exec(ctx, cmd) // an id is started once
		if err == nil {
			c.use(stream, saves)
			return c, nil
		}
		if !b.SavedSince(saves) || !box.LooksEnded(err) {
			c.release()
			return nil, b.Explain(ctx, err)
		}
		if err := c.standing(); err != nil {
			c.release()
			return nil, err
		}
	}
}

// begin counts the command as activity of its box, until its release.
func (c *Command) begin() {
	end := c.box.Activity.Begin()
	c.release = sync.OnceFunc(func() {
		if c.input != nil {
			c.input.End()
		}
		c.mu.Lock()
		c.box.Agent.Release(c.reserved)
		c.reserved = -1
		c.mu.Unlock()
		end()
	})
}

// use replaces the command's stream.
func (c *Command) use(stream *agentapi.Stream, saves int64) {
	stream.OnExit(func(exit agentapi.Exit) {
		audit.FromContext(c.ctx).Detail("exit_code", strconv.Itoa(exit.Code))
		if exit.Limit != "" {
			audit.FromContext(c.ctx).Detail("limit_exceeded", string(exit.Limit))
		}
		c.calls.metrics.ended(c.begun, exit)
		c.calls.commandEnded(c.ctx, c.box.ID, c.command.Argv[0], exit)
	})
	c.mu.Lock()
	c.stream, c.saves = stream, saves
	c.mu.Unlock()
	if c.input != nil {
		c.input.Follow(stream)
	}
}

func (c *Command) current() (*agentapi.Stream, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream, c.saves
}

// standing waits for the end of an operation on the sandbox, and returns an error if the operation
// ended the command's processes.
func (c *Command) standing() error {
	if err := c.box.Settled(c.ctx); err != nil {
		return err
	}
	sb := c.box.Sandbox()
	switch {
	case sb.State == sandbox.Destroying || sb.State.Ended():
		return box.StateError(&sb)
	case sb.State != sandbox.Running || !bytes.Equal(sb.Handle, c.handle):
		return sandbox.Errorf(sandbox.NotRunning,
			"sandbox %q was paused or taken back to a checkpoint while the command ran; start what is to outlive that as an execution", sb.Name)
	default:
		return nil
	}
}

// again replaces a connection that broke with reason.
func (c *Command) again(old *agentapi.Stream, saves int64, reason error) error {
	if c.input != nil {
		if err := c.input.Failed(); err != nil {
			return err
		}
	}
	if c.ctx.Err() != nil || !box.LooksEnded(reason) {
		return box.AgentError(reason)
	}
	if !c.box.SavedSince(saves) {
		if c.box.Runs(c.handle) {
			return c.box.Explain(c.ctx, reason)
		}
	}
	if sb := c.box.View().Sandbox; sb.State != sandbox.Running { // in the middle of a checkpoint it may be attached to
		if err := c.standing(); err != nil {
			return err
		}
	}
	for {
		before := c.box.Saves()
		err := c.attach(old.Offset())
		if err == nil {
			return nil
		}
		// A box stands still for as long as saving it takes: its agent's silence means
		// nothing then, and the grace of its processes begins after that.
		if c.ctx.Err() == nil && box.NoAnswer(err) && c.box.SavedSince(before) {
			continue
		}
		if moved := c.standing(); moved != nil {
			return moved
		}
		return c.box.Explain(c.ctx, err)
	}
}

// errStopped means that the sandbox no longer runs.
var errStopped = errors.New("the sandbox does not run")

// attach connects to the process, and reads its output from an offset.
func (c *Command) attach(offset int64) error {
	_, err := backoff.Retry(c.ctx, func() (struct{}, error) {
		if !c.box.Runs(c.handle) {
			return struct{}{}, backoff.Permanent(errStopped)
		}
		saves := c.box.Saves()
		stream, err := c.box.Agent.Attach(c.ctx, c.command.ID, offset)
		if err == nil {
			c.use(stream, saves)
		}
		var refused *agentapi.Error
		if errors.As(err, &refused) && refused.Code != agentapi.CodeTooMany { // which passes
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, retry.Pauses(10*time.Millisecond, time.Second), backoff.WithMaxElapsedTime(c.calls.answerTimeout))
	return err
}

// Info returns the process as it was when it was started.
func (c *Command) Info() agentapi.ProcessInfo {
	stream, _ := c.current()
	return stream.Info()
}

// Next returns the next frame: frames of stdout and stderr in the order of their arrival, then one
// exit, then io.EOF. The data of a frame is valid until the next call. Any other error explains why
// the exit is unknown, and later calls return it again.
//
// Errors: NotRunning if the sandbox was paused or returned to a checkpoint; Ended;
// AgentUnreachable.
func (c *Command) Next() (agentapi.Frame, error) {
	for c.failed == nil {
		stream, saves := c.current()
		f, err := stream.Next()
		if err == nil {
			if f.Type == agentapi.FrameStdout || f.Type == agentapi.FrameStderr {
				audit.FromContext(c.ctx).Output(f.Type == agentapi.FrameStderr, f.Data)
			}
			return f, nil
		}
		if err == io.EOF {
			c.release()
			return f, err
		}
		if c.failed = c.again(stream, saves, err); c.failed != nil {
			c.release()
		}
	}
	return agentapi.Frame{}, c.failed
}

// Write sends p to the command's stdin. While the command does not read, Write blocks until the
// command ends. It fails after CloseStdin and after the end of the command. A command without stdin
// discards its input.
func (c *Command) Write(p []byte) (int, error) { return c.WriteContext(c.ctx, p) }

// WriteContext is Write until ctx ends.
func (c *Command) WriteContext(ctx context.Context, p []byte) (int, error) {
	if c.input == nil {
		return len(p), nil
	}
	return c.input.Write(ctx, p)
}

// CloseStdin ends the command's stdin. It may be called again.
func (c *Command) CloseStdin() error {
	if c.input != nil {
		c.input.Close()
	}
	return nil
}

// Resize sets the size of the command's terminal. Errors: Invalid if it has no terminal.
//
// ctx bounds the call, which does not end when the command does.
func (c *Command) Resize(ctx context.Context, size agentapi.Size) error {
	if err := c.box.Settled(ctx); err != nil {
		return err
	}
	return box.AgentError(c.box.Agent.Resize(ctx, c.command.ID, size))
}

// Signal sends a signal to the command's processes; see [agentapi.Client.Signal]. ctx bounds the
// call, which does not end when the command does: the answer to a SIGKILL often arrives after the
// exit. Errors: NotFound if the command has ended.
func (c *Command) Signal(ctx context.Context, signal int) error {
	if err := c.box.Settled(ctx); err != nil {
		return err
	}
	return box.AgentError(c.box.Agent.Signal(ctx, c.command.ID, signal))
}

// Close disconnects from the command, which the agent ends if nobody attaches to it for
// [agentapi.DetachGrace]. Calls in progress fail. It may be called again.
func (c *Command) Close() error {
	c.release()
	stream, _ := c.current()
	return stream.Close()
}

// KeptInput returns the capacity of the buffer of input that the command keeps to send again
// after a save, in bytes, and the offset of its first byte. Both are 0 without input.
func (c *Command) KeptInput() (size int, start int64) {
	if c.input == nil {
		return 0, 0
	}
	return c.input.kept()
}
