package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
)

// armTimer sets the timer of the sandbox to its next time limit.
//
// Preconditions: b is locked.
func (s *Service) armTimer(b *entry) {
	if b.timer != nil {
		b.timer.Stop()
	}
	sb := b.Sandbox()
	next := timelimit.Next(&sb)
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
	switch code := timelimit.Due(&sb, time.Now()); {
	case code == "":
	case code == sandbox.CauseIdle && s.working(b):
		b.Activity.At(time.Now())
	case code == sandbox.CauseIdle && sb.Timeouts.OnIdle == sandbox.OnIdlePause:
		s.pauseIdle(b)
	default:
		s.endOrLog(b, timelimit.Cause(code, &sb))
	}
	b.Lock()
	defer b.Unlock()
	if b.Context().Err() == nil && b.wanted == nil { // the sweep repeats an end that could not be recorded
		s.armTimer(b)
	}
}

// pauseIdle pauses an idle sandbox, unless a call arrives meanwhile.
func (s *Service) pauseIdle(b *entry) {
	err := b.Exclusively(b.Context(), box.Pause, func() error {
		if sb := b.Sandbox(); timelimit.Due(&sb, time.Now()) != sandbox.CauseIdle {
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
