package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// agentCodes says what an agent's refusal means to callers.
var agentCodes = map[agentapi.ErrorCode]sandbox.Code{
	agentapi.CodeInvalid:    sandbox.Invalid,
	agentapi.CodeNotFound:   sandbox.NotFound,
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

// AgentError turns an error of package agentapi into one with a code. It is the
// only place that does. Errors that have a code already, like those of a driver
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
		return &sandbox.Error{Code: code, Message: clip(refused.Message)}
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
		// The agent's own port being closed, or the box unknown, is an agent that is gone.
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent cannot be reached")
	default:
		return err
	}
}

// endGrace is how long an unreachable agent's sandbox is given to be noticed as ended.
const endGrace = 1500 * time.Millisecond

// explain turns an error of a call or connection into a sandbox into one with a
// code: [sandbox.Ended] with the cause when the sandbox has ended meanwhile, else
// as [AgentError]. An agent dies a moment before the end of its box is noticed, so
// what looks like that is given the moment.
func (s *Service) explain(ctx context.Context, b *box, err error) error {
	if err == nil {
		return nil
	}
	v := b.view()
	if v.sb.State == sandbox.Running && looksEnded(err) {
		timer := time.NewTimer(endGrace)
		defer timer.Stop()
		select {
		case <-v.changed:
			v = b.view()
		case <-timer.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	if v.sb.State != sandbox.Running {
		return stateError(&v.sb)
	}
	return AgentError(err)
}

// looksEnded reports whether err is what the end of a box looks like from here:
// a connection that breaks in the middle of an answer, or a driver that knows.
func looksEnded(err error) bool {
	code := sandbox.CodeOf(err)
	return noAnswer(err) || code == sandbox.Unavailable || code == sandbox.NotFound
}

// noAnswer reports whether err comes of an agent that cannot be reached or is silent.
func noAnswer(err error) bool {
	return errors.Is(err, agentapi.ErrUnreachable) || errors.Is(err, agentapi.ErrBadAnswer)
}

// stateError says why a sandbox that is not running cannot be used.
func stateError(sb *sandbox.Sandbox) error {
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

func notFound(ref string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %q", fieldText(ref))
}

// fieldText makes a caller's text fit for a message.
func fieldText(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

var errClosed = sandbox.Errorf(sandbox.Unavailable, "the server is starting or shutting down; try again")

// failure is why provisioning did not work.
type failure struct {
	cause sandbox.Cause
	err   error
}

func (f *failure) Error() string {
	if f.err == nil {
		return f.cause.String()
	}
	return fmt.Sprintf("%s: %v", f.cause, f.err)
}

func (f *failure) Unwrap() error { return f.err }

// fail returns a failure whose public message is what happened and, when err has
// a public message, that too.
func fail(code sandbox.CauseCode, err error, what string) *failure {
	msg := what
	var public *sandbox.Error
	if errors.As(err, &public) && public.Code != sandbox.Internal {
		msg += ": " + public.Message
		if public.Field != "" {
			msg = what + ": " + public.Field + ": " + public.Message
		}
	}
	return &failure{cause: sandbox.Cause{Code: code, Message: clip(msg)}, err: err}
}

// clip makes a message fit for storing and showing: bounded, valid, on one line.
func clip(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), sandbox.MessageMax)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
