package box

import (
	"context"
	"errors"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// ErrClosed says that the service does not run.
var ErrClosed = sandbox.Errorf(sandbox.Unavailable, "the server is starting or shutting down; try again")

// agentCodes maps an agent's refusal to the code that callers get.
var agentCodes = map[agentapi.ErrorCode]sandbox.Code{
	agentapi.CodeInvalid:    sandbox.Invalid,
	agentapi.CodeNotFound:   sandbox.NotFound,
	agentapi.CodeNoFile:     sandbox.FileNotFound,
	agentapi.CodeNoProgram:  sandbox.ProgramNotFound,
	agentapi.CodeNoCwd:      sandbox.FileNotFound,
	agentapi.CodeExists:     sandbox.Exists,
	agentapi.CodeNotDir:     sandbox.Conflict,
	agentapi.CodeIsDir:      sandbox.Conflict,
	agentapi.CodeNotEmpty:   sandbox.Conflict,
	agentapi.CodeDenied:     sandbox.Forbidden,
	agentapi.CodeDiskFull:   sandbox.DiskFull,
	agentapi.CodePortClosed: sandbox.PortClosed,
	agentapi.CodeTooMany:    sandbox.QuotaExceeded,
	agentapi.CodeOutputGone: sandbox.NotFound,
	agentapi.CodeInternal:   sandbox.AgentUnreachable,
}

// AgentError turns an error of package agentapi into an error with a code. It is the
// only place that does. Errors that have a code already, such as errors of a driver
// behind a dial function, keep it, and nil stays nil.
func AgentError(err error) error {
	var refused *agentapi.Error
	var coded *sandbox.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		code, ok := agentCodes[refused.Code]
		if !ok {
			return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent answered with an unknown error")
		}
		public := &sandbox.Error{Code: code, Message: sandbox.OneLine(refused.Message)}
		if refused.Code == agentapi.CodeNoCwd {
			public.Field = "cwd"
		}
		return public
	case errors.As(err, &coded) && coded.Code == sandbox.AgentUnreachable:
		return err // the driver has waited for long enough
	case errors.Is(err, context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.Timeout, err, "the sandbox did not answer in time")
	case errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Unavailable, err, "the call was canceled")
	case errors.Is(err, agentapi.ErrBadAnswer):
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent gave no proper answer")
	case errors.As(err, &coded) && coded.Code != sandbox.PortClosed && coded.Code != sandbox.NotFound:
		return err
	case errors.Is(err, agentapi.ErrUnreachable):
		// If the agent's own port is closed, or the driver does not know the box, the agent is gone.
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent cannot be reached")
	default:
		return err
	}
}

// endGrace is how long the end of a sandbox whose agent cannot be reached may take to be noticed.
const endGrace = 1500 * time.Millisecond

// Explain turns an error of a call or connection into the sandbox into an error with a
// code: [sandbox.Ended] with the cause if the sandbox has ended meanwhile, else as
// [AgentError]. An agent dies a moment before the end of its box is noticed, so Explain waits
// a moment if err looks like that.
func (b *Box) Explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	v := b.View()
	if v.Sandbox.State == sandbox.Running && LooksEnded(err) {
		timer := time.NewTimer(endGrace)
		defer timer.Stop()
		select {
		case <-v.Changed:
			v = b.View()
		case <-timer.C:
		case <-ctx.Done():
		case <-b.group.Context().Done():
		}
	}
	if v.Sandbox.State != sandbox.Running {
		return StateError(&v.Sandbox)
	}
	return AgentError(err)
}

// LooksEnded reports whether err is an error that the end of a box causes: a connection that
// breaks in the middle of an answer, or a driver that does not know the box.
func LooksEnded(err error) bool {
	code := sandbox.CodeOf(err)
	return NoAnswer(err) || code == sandbox.Unavailable || code == sandbox.NotFound
}

// NoAnswer reports whether err comes from an agent that cannot be reached or is silent.
func NoAnswer(err error) bool {
	return errors.Is(err, agentapi.ErrUnreachable) || errors.Is(err, agentapi.ErrBadAnswer)
}

// StateError explains why a sandbox that does not run cannot be used. Codes: NotRunning,
// Conflict, Ended.
func StateError(sb *sandbox.Sandbox) error {
	switch {
	case sb.State == sandbox.Provisioning:
		return sandbox.Errorf(sandbox.NotRunning, "sandbox %q is still provisioning; wait until it is running", sb.Name)
	case sb.State == sandbox.Pausing || sb.State == sandbox.Paused || sb.State == sandbox.Resuming:
		return sandbox.Errorf(sandbox.NotRunning, "sandbox %q is %s; resume it", sb.Name, sb.State)
	case sb.State == sandbox.Running:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %q is running", sb.Name)
	case sb.Cause == nil:
		return sandbox.Errorf(sandbox.Ended, "sandbox %q is %s", sb.Name, sb.State)
	default:
		return sandbox.Errorf(sandbox.Ended, "sandbox %q is %s (%s)", sb.Name, sb.State, sb.Cause)
	}
}
