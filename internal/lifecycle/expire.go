package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
)

// timers have a timer for each sandbox.
type timers struct {
	// due is called at a time limit of a sandbox, in a goroutine of work.
	due  func(*entry)
	work *background.Group
}

// arm sets the timer of the sandbox to its next time limit.
//
// Preconditions: b is locked.
func (t *timers) arm(b *entry) {
	if b.timer != nil {
		b.timer.Stop()
	}
	sb := b.Sandbox()
	next := timelimit.Next(&sb)
	if next.IsZero() || sb.State == sandbox.Destroying || sb.State.Ended() {
		return
	}
	b.timer = time.AfterFunc(time.Until(next), func() {
		t.work.Go(func() { t.due(b) })
	})
}

// expirer acts on the time limits of sandboxes.
type expirer struct {
	timers    *timers
	ender     *ender
	suspender *suspender
	log       *slog.Logger
}

// expire acts on a time limit that has passed, and sets the timer to the next time limit.
func (x *expirer) expire(b *entry) {
	sb := b.Sandbox()
	switch code := timelimit.Due(&sb, time.Now()); {
	case code == "":
	case code == sandbox.CauseIdle && x.working(b):
		b.Activity.At(time.Now())
	case code == sandbox.CauseIdle && sb.Timeouts.OnIdle.Pauses():
		if !b.idling.CompareAndSwap(false, true) {
			return // the sweep finds it while it waits for its turn
		}
		defer b.idling.Store(false)
		due := func(sb *sandbox.Sandbox) bool { return timelimit.Due(sb, time.Now()) == sandbox.CauseIdle }
		if !x.pauseIdle(b, "nothing used it for its idle timeout", due) {
			b.Activity.At(time.Now()) // the next attempt is in one idle timeout from now
		}
	default:
		x.ender.endOrLog(b, timelimit.Cause(code, &sb))
	}
	b.Lock()
	defer b.Unlock()
	if b.Context().Err() == nil && b.wanted == nil { // the sweep repeats an end that could not be recorded
		x.timers.arm(b)
	}
}

// pauseIdle pauses a sandbox, unless a call arrives meanwhile and it is not idle any more. It reports, and logs, whether
// that failed.
func (x *expirer) pauseIdle(b *entry, why string, idle func(*sandbox.Sandbox) bool) (ok bool) {
	err := x.suspender.saver.Exclusively(b.Context(), b.Box, box.Pause, func() error {
		sb := b.Sandbox()
		if !idle(&sb) {
			return nil
		}
		return x.suspender.pause(b, why, sb.Timeouts.OnIdle == sandbox.OnIdlePauseFiles)
	})
	if err != nil && b.Context().Err() == nil {
		x.log.Warn("idle sandbox could not be paused", "sandbox", b.ID, "error", err)
		return false
	}
	return true
}

// working asks the agent whether a command runs in the sandbox. The image's own command does not
// count: it runs as long as the sandbox.
func (x *expirer) working(b *entry) bool {
	ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
	defer cancel()
	list, err := b.Agent.Processes(ctx)
	if err != nil && driver.OutOfReach(x.suspender.driver, b.ID) {
		return true // nobody can use it, and its commands go on
	}
	if err != nil {
		x.log.Warn("cannot ask an idle sandbox whether it works", "sandbox", b.ID, "error", err)
		return false
	}
	for _, p := range list {
		if p.Exit == nil && p.ID != agentapi.MainID {
			return true
		}
	}
	return false
}
