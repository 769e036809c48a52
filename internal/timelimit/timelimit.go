// Package timelimit has the time limits of a sandbox: its ttl, counted in every state from its
// creation or from the last change of the ttl; its idle timeout, counted from its last activity
// while it runs; and its paused timeout, counted while it is paused. Package lifecycle acts on them.
package timelimit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Due returns the cause for the time limit of a sandbox that has passed; "" if none has.
func Due(sb *sandbox.Sandbox, now time.Time) sandbox.CauseCode {
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

// Next returns when the next time limit of a sandbox passes; zero without any.
func Next(sb *sandbox.Sandbox) (next time.Time) {
	for _, limit := range []func() (time.Time, bool){sb.Deadline, sb.PausedDeadline, sb.IdleDeadline} {
		if at, ok := limit(); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Cause returns the cause of the end of a sandbox for a time limit.
func Cause(code sandbox.CauseCode, sb *sandbox.Sandbox) sandbox.Cause {
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

// Bounds are the shortest time limits that callers may ask for.
type Bounds struct {
	TTL  time.Duration
	Idle time.Duration // idle and paused timeout
}

// CheckTTL checks a ttl; 0 means none. Errors: Invalid, naming the field.
func (b Bounds) CheckTTL(d time.Duration) error {
	if d != 0 && (d < b.TTL || d > sandbox.TTLMax) {
		return sandbox.InvalidField("ttl_seconds", "must be %d to %d", int(b.TTL/time.Second), int(sandbox.TTLMax/time.Second))
	}
	return nil
}

// CheckTimeouts checks the time limits other than the ttl; 0 means none. Errors: Invalid, naming the
// field.
func (b Bounds) CheckTimeouts(t sandbox.Timeouts) error {
	for _, d := range []struct {
		field string
		value time.Duration
		min   time.Duration
	}{
		{"idle_seconds", t.Idle, b.Idle},
		{"paused_seconds", t.Paused, min(b.Idle, sandbox.PausedMin)},
		{"execution_seconds", t.Execution, min(b.Idle, time.Second)},
	} {
		if d.value != 0 && (d.value < d.min || d.value > sandbox.TimeoutMax) {
			return sandbox.InvalidField("timeouts."+d.field, "must be %d to %d seconds", int(d.min/time.Second), int(sandbox.TimeoutMax/time.Second))
		}
	}
	switch t.OnIdle {
	case "", sandbox.OnIdleDestroy, sandbox.OnIdlePause, sandbox.OnIdlePauseFiles:
		return nil
	}
	return sandbox.InvalidField("timeouts.on_idle", "must be %s, %s or %s", sandbox.OnIdleDestroy, sandbox.OnIdlePause, sandbox.OnIdlePauseFiles)
}

// Store records changes of sandboxes.
type Store interface {
	// ChangeSandbox makes changes to a live sandbox, with an event. Errors: NotFound, Ended.
	ChangeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error)
}

// SetTTL records a ttl that counts from now on; 0 means none. Errors: Ended; Unavailable.
//
// Preconditions: b is locked.
func SetTTL(ctx context.Context, store Store, b *box.Box, ttl time.Duration) error {
	if err := b.Over(); err != nil {
		return err
	}
	now := time.Now().UTC()
	next := b.Sandbox()
	next.TTL, next.TTLFrom = ttl, now
	ev := sandbox.Event{
		Time: now, Type: sandbox.EventTTL, Message: "it has no ttl any more",
		Data: map[string]string{"ttl_seconds": strconv.FormatInt(int64(ttl/time.Second), 10)},
	}
	if deadline, ok := next.Deadline(); ok {
		ev.Message = fmt.Sprintf("its ttl is %s from now on", ttl)
		ev.Data["deadline"] = deadline.Format(time.RFC3339)
	}
	sb, err := store.ChangeSandbox(ctx, b.ID, sandbox.Change{TTL: &ttl, TTLFrom: &now}, ev)
	if err != nil {
		return err
	}
	b.Set(sb)
	return nil
}
