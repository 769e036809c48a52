package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// The time limits of a sandbox are its ttl, counted from its creation in every state; its idle
// timeout, counted from its last activity while it runs; and its paused timeout, counted while it
// is paused.

// due returns the cause for the time limit of a sandbox that has passed; "" if none has.
func due(sb *sandbox.Sandbox, now time.Time) sandbox.CauseCode {
	passed := func(t time.Time, ok bool) bool { return ok && !now.Before(t) }
	switch {
	case passed(sb.Deadline()):
		return sandbox.CauseTTL
	case passed(sb.PausedDeadline()):
		return sandbox.CausePausedTTL
	case passed(sb.IdleDeadline()):
		return sandbox.CauseIdle
	}
	return ""
}

func timeoutCause(code sandbox.CauseCode, sb *sandbox.Sandbox) sandbox.Cause {
	c := sandbox.Cause{Code: code}
	switch code {
	case sandbox.CauseTTL:
		c.Message = fmt.Sprintf("its time to live of %s was over", sb.TTL)
	case sandbox.CausePausedTTL:
		c.Message = fmt.Sprintf("it was paused for longer than its paused timeout of %s", sb.Timeouts.Paused)
	default:
		c.Message = fmt.Sprintf("nothing used it for its idle timeout of %s", sb.Timeouts.Idle)
	}
	return c
}

// armTimer sets the timer of the sandbox to its next time limit.
//
// Preconditions: b is locked.
func (s *Service) armTimer(b *entry) {
	if b.timer != nil {
		b.timer.Stop()
	}
	sb := b.Sandbox()
	var next time.Time
	for _, clock := range []func() (time.Time, bool){sb.Deadline, sb.PausedDeadline, sb.IdleDeadline} {
		if at, ok := clock(); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() || sb.State == sandbox.Destroying || sb.State.Ended() {
		return
	}
	b.timer = time.AfterFunc(time.Until(next), func() {
		s.work.Go(func() { s.expire(b) })
	})
}

// expire acts on a time limit that has passed, and sets the timer to the next time limit.
func (s *Service) expire(b *entry) {
	sb := b.Sandbox()
	switch code := due(&sb, time.Now()); {
	case code == "":
	case code != sandbox.CauseIdle:
		s.endOrLog(b, timeoutCause(code, &sb))
		return
	case s.working(b):
		b.Activity.At(time.Now())
	case sb.Timeouts.OnIdle == sandbox.OnIdlePause:
		s.pauseIdle(b)
	default:
		// A call that came in the meantime wins.
		if sb = b.Sandbox(); due(&sb, time.Now()) == sandbox.CauseIdle {
			s.endOrLog(b, timeoutCause(code, &sb))
			return
		}
	}
	b.Lock()
	defer b.Unlock()
	if b.Context().Err() == nil {
		s.armTimer(b)
	}
}

// pauseIdle pauses an idle sandbox, unless a call arrives meanwhile.
func (s *Service) pauseIdle(b *entry) {
	err := b.Exclusively(b.Context(), box.Pause, func() error {
		if sb := b.Sandbox(); due(&sb, time.Now()) != sandbox.CauseIdle {
			return nil
		}
		return s.pause(b, "nothing used it for its idle timeout")
	})
	if err != nil && b.Context().Err() == nil {
		s.log.Warn("idle sandbox could not be paused", "sandbox", b.ID, "error", err)
		b.Activity.At(time.Now()) // the next attempt is in one idle timeout from now
	}
}

// working asks the agent whether a command runs in the sandbox. The image's own command does not
// count: it runs as long as the sandbox.
func (s *Service) working(b *entry) bool {
	ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
	defer cancel()
	list, err := b.Agent.Processes(ctx)
	if err != nil {
		s.log.Warn("cannot ask an idle sandbox whether it works", "sandbox", b.ID, "error", err)
		return false
	}
	for _, p := range list {
		if p.Exit == nil && p.ID != agentapi.MainID {
			return true
		}
	}
	return false
}
