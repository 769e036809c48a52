package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
)

// Destroy ends a sandbox with a cause ("" is [sandbox.CauseDestroyed]) and returns it when all its
// resources are freed. It works in every state and is idempotent: a sandbox that has ended, or
// whose end is recorded, keeps its cause. If ctx ends first, Destroy returns the present sandbox
// with an error of code Timeout, and the destruction continues. Errors: NotFound, Timeout,
// Unavailable.
func (s *Service) Destroy(ctx context.Context, c sandbox.Caller, ref string, cause sandbox.CauseCode) (sandbox.Sandbox, error) {
	if err := s.ready(); err != nil {
		return sandbox.Sandbox{}, err
	}
	b, sb, err := s.Entry(ctx, c, ref)
	if err != nil || b == nil {
		return sb, err
	}
	if err := s.ender.endAnyway(b, sandbox.Cause{Code: cmp.Or(cause, sandbox.CauseDestroyed), Message: sandbox.OneLine("it was destroyed by " + string(c.User))}); err != nil {
		return b.Sandbox(), err
	}
	for {
		v := b.View()
		if v.Sandbox.State.Ended() {
			return v.Sandbox, nil
		}
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return v.Sandbox, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "sandbox %q is still being destroyed", v.Sandbox.Name)
		case <-s.ctx.Done():
			return v.Sandbox, box.ErrClosed
		}
	}
}

// ender ends sandboxes: it records the intent, destroys the box, and records the end. Everything that
// ends a sandbox goes through it.
type ender struct {
	states   *states
	driver   driver.Driver
	saved    *checkpoint.Store
	usage    *usage.Recorder
	networks *network.Service
	quotas   *quota.Controller
	boxes    *box.Index[*entry]
	metrics  *telemetry.Metrics
	work     *background.Group
	ctx      context.Context // of work
	log      *slog.Logger
}

// end records the state destroying and the cause, stops the work on the sandbox, and destroys it in
// the background. It does nothing if an end is recorded already, or if cause is a time limit that
// has not passed: a call, or a change of the ttl, came after the caller's check. If the record
// fails, nothing else happens, and the sweep tries again.
func (e *ender) end(b *entry, cause sandbox.Cause) error {
	b.Lock()
	defer b.Unlock()
	sb := b.Sandbox()
	if sb.State == sandbox.Destroying || sb.State.Ended() {
		return nil
	}
	if cause.Code.TimeLimit() && b.wanted == nil && timelimit.Due(&sb, time.Now()) != cause.Code {
		return nil
	}
	if evicted := b.evicted.Load(); evicted != nil { // the result does not count
		cause = *evicted
	}
	record := ending(cause)
	next, err := e.states.transition(sb, sandbox.Destroying, sandbox.Change{Cause: &record.Cause}, record.Event)
	if err != nil {
		if b.wanted == nil { // the first cause counts, and not what came of it
			b.wanted = &cause
		}
		if e.ctx.Err() != nil {
			return box.ErrClosed
		}
		return fmt.Errorf("record the end of sandbox %s: %w", b.ID, err)
	}
	e.ending(b, next)
	return nil
}

// endAnyway is end, except on a full disk: if the record fails for lack of space, endAnyway first
// destroys the box, whose files free space for the record. If the server is killed between the two,
// the next server finds a sandbox without a box.
func (e *ender) endAnyway(b *entry, cause sandbox.Cause) error {
	err := e.end(b, cause)
	if !errors.Is(err, sandbox.ErrNoSpace) || b.Sandbox().State == sandbox.Paused {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, destroyTimeout)
	defer cancel()
	if derr := e.driver.Destroy(ctx, b.ID); derr != nil {
		return errors.Join(err, derr)
	}
	return e.end(b, cause)
}

// ending returns the record of an end with that cause at the present time.
func ending(cause sandbox.Cause) sandbox.Ending {
	return sandbox.Ending{Cause: cause, Event: sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventDestroying, Message: cause.Message,
		Data: map[string]string{"cause": string(cause.Code)},
	}}
}

// ending continues the end of a sandbox whose record is next.
//
// Preconditions: b is locked.
func (e *ender) ending(b *entry, next sandbox.Sandbox) {
	b.wanted = nil
	b.Set(next)
	e.destroyLater(b)
}

// endOrLog is end for callers that cannot return an error.
func (e *ender) endOrLog(b *entry, cause sandbox.Cause) {
	if err := e.endAnyway(b, cause); err != nil && e.ctx.Err() == nil {
		e.log.Error("end of sandbox not recorded, trying again soon", "sandbox", b.ID, "cause", cause.Code, "error", err)
	}
}

// End ends a sandbox for a caller that cannot report an error. If the record fails, End logs the
// error, and the sweep tries again.
func (s *Service) End(b *box.Box, cause sandbox.Cause) {
	if e := s.boxes.ByID(b.ID); e != nil {
		s.ender.endOrLog(e, cause)
	}
}

// destroyLater starts the destruction of a sandbox in state destroying, once.
//
// Preconditions: b is locked.
func (e *ender) destroyLater(b *entry) {
	b.Cancel()
	if b.timer != nil {
		b.timer.Stop()
	}
	if !b.destroying {
		b.destroying = e.work.Go(func() { e.destroy(b) })
	}
}

// destroy removes all resources of a sandbox and records its end. It repeats failed steps until
// they succeed or the service closes; the next server then continues.
func (e *ender) destroy(b *entry) {
	b.Work.Wait()
	_ = b.Agent.Close() // does not fail
	b.Link.Disconnect(false)
	e.usage.Finish(e.ctx, b.Box)
	err := e.persist("destroy box", b, func() error {
		ctx, cancel := context.WithTimeout(e.ctx, destroyTimeout)
		defer cancel()
		return e.driver.Destroy(ctx, b.ID)
	})
	if err != nil {
		return // the service closes
	}
	if e.persist("remove checkpoints", b, func() error { return e.saved.RemoveAll(b.ID) }) != nil {
		return
	}
	if e.persist("record usage", b, func() error { return e.usage.Record(e.ctx, b.Box) }) != nil {
		return
	}
	_ = e.persist("record end", b, func() error { // fails only if the service closes
		b.Lock()
		defer b.Unlock()
		ended, err := e.recordEnd(b.Sandbox())
		if err != nil {
			return err
		}
		e.metrics.Ended(ended.Cause.Code)
		e.boxes.Remove(b.Box)
		e.networks.Unpublish(b.Box)
		b.Set(ended)
		return nil
	})
}

// recordEnd moves a sandbox without resources to its final state.
func (e *ender) recordEnd(sb sandbox.Sandbox) (sandbox.Sandbox, error) {
	now := time.Now().UTC()
	to := sb.Cause.Code.Final()
	event := sandbox.EventDestroyed
	if to == sandbox.Failed {
		event = sandbox.EventFailed
	}
	ended, err := e.states.transition(sb, to,
		sandbox.Change{EndedAt: &now, Handle: new([]byte), Saved: new(sandbox.CheckpointID), SavedBytes: new(int64)},
		sandbox.Event{Time: now, Type: event, Message: sb.Cause.Message, Data: map[string]string{"cause": string(sb.Cause.Code)}})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		// Somebody deleted the row; there is nothing to write and nothing to keep.
		sb.State, sb.EndedAt, sb.Handle = to, now, nil
		return sb, nil
	}
	return ended, err
}

// persist repeats a step of a sandbox's end until it succeeds. It fails only if the service closes.
func (e *ender) persist(step string, b *entry, f func() error) error {
	return retry.Persist(e.ctx, e.log.With("sandbox", b.ID), step, f)
}

// seeEnding sees to the end of b as its row has it, unless that is seen to.
//
// Preconditions: b is locked.
func (e *ender) seeEnding(b *entry, row sandbox.Sandbox) {
	if sb := b.Sandbox(); sb.State != sandbox.Destroying && !sb.State.Ended() {
		e.ending(b, row)
		e.quotas.Released()
	}
}

// foundEnding sees to the end of a sandbox whose row says that it is being destroyed.
func (e *ender) foundEnding(row sandbox.Sandbox) {
	b := e.boxes.ByID(row.ID)
	if b == nil {
		return // it has ended, or the sweep finds it
	}
	b.Lock()
	defer b.Unlock()
	e.seeEnding(b, row)
}

// awaitEnd waits until a sandbox that is being destroyed has ended completely, or ctx ends. dying
// may be nil.
func (e *ender) awaitEnd(ctx context.Context, dying *sandbox.Sandbox) {
	if dying == nil {
		return
	}
	b := e.boxes.ByID(dying.ID)
	if b == nil {
		return // nothing is
	}
	for v := b.View(); !v.Sandbox.State.Ended(); v = b.View() {
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return
		case <-e.ctx.Done():
			return
		}
	}
}
