package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
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
	if err := s.endAnyway(b, sandbox.Cause{Code: cmp.Or(cause, sandbox.CauseDestroyed), Message: sandbox.OneLine("it was destroyed by " + string(c.User))}); err != nil {
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

// end records the state destroying and the cause, stops the work on the sandbox, and destroys it in
// the background. It does nothing if an end is recorded already, or if cause is a time limit that
// has not passed: a call, or a change of the ttl, came after the caller's check. If the record
// fails, nothing else happens, and the sweep tries again.
func (s *Service) end(b *entry, cause sandbox.Cause) error {
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
	next, err := s.transition(sb, sandbox.Destroying, func(sb *sandbox.Sandbox) { sb.Cause = &record.Cause }, record.Event)
	if err != nil {
		if b.wanted == nil { // the first cause counts, and not what came of it
			b.wanted = &cause
		}
		if s.ctx.Err() != nil {
			return box.ErrClosed
		}
		return fmt.Errorf("record the end of sandbox %s: %w", b.ID, err)
	}
	s.ending(b, next)
	return nil
}

// endAnyway is end, except on a full disk: if the record fails for lack of space, endAnyway first
// destroys the box, whose files free space for the record. If the server is killed between the two,
// the next server finds a sandbox without a box.
func (s *Service) endAnyway(b *entry, cause sandbox.Cause) error {
	err := s.end(b, cause)
	if !errors.Is(err, sandbox.ErrNoSpace) || b.Sandbox().State == sandbox.Paused {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, destroyTimeout)
	defer cancel()
	if derr := s.driver.Destroy(ctx, b.ID); derr != nil {
		return errors.Join(err, derr)
	}
	return s.end(b, cause)
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
func (s *Service) ending(b *entry, next sandbox.Sandbox) {
	b.wanted = nil
	b.Set(next)
	s.destroyLater(b)
}

// endOrLog is end for callers that cannot return an error.
func (s *Service) endOrLog(b *entry, cause sandbox.Cause) {
	if err := s.endAnyway(b, cause); err != nil && s.ctx.Err() == nil {
		s.log.Error("end of sandbox not recorded, trying again soon", "sandbox", b.ID, "cause", cause.Code, "error", err)
	}
}

// End ends a sandbox for a caller that cannot report an error. If the record fails, End logs the
// error, and the sweep tries again.
func (s *Service) End(b *box.Box, cause sandbox.Cause) {
	if e := s.boxes.ByID(b.ID); e != nil {
		s.endOrLog(e, cause)
	}
}

// destroyLater starts the destruction of a sandbox in state destroying, once.
//
// Preconditions: b is locked.
func (s *Service) destroyLater(b *entry) {
	b.Cancel()
	if b.timer != nil {
		b.timer.Stop()
	}
	if !b.destroying {
		b.destroying = s.work.Go(func() { s.destroy(b) })
	}
}

// destroy removes all resources of a sandbox and records its end. It repeats failed steps until
// they succeed or the service closes; the next server then continues.
func (s *Service) destroy(b *entry) {
	b.Work.Wait()
	_ = b.Agent.Close() // does not fail
	b.Link.Disconnect(false)
	s.usage.Finish(s.ctx, b.Box)
	err := s.persist("destroy box", b, func() error {
		ctx, cancel := context.WithTimeout(s.ctx, destroyTimeout)
		defer cancel()
		return s.driver.Destroy(ctx, b.ID)
	})
	if err != nil {
		return // the service closes
	}
	if s.persist("remove checkpoints", b, func() error { return s.saved.RemoveAll(b.ID) }) != nil {
		return
	}
	if s.persist("record usage", b, func() error { return s.usage.Record(s.ctx, b.Box) }) != nil {
		return
	}
	var ended sandbox.Sandbox
	err = s.persist("record end", b, func() (err error) {
		ended, err = s.recordEnd(b.Sandbox())
		return err
	})
	if err != nil {
		return
	}
	s.metrics.Ended(ended.Cause.Code)
	s.boxes.Remove(b.Box)
	s.networks.Unpublish(b.Box)
	b.Lock()
	defer b.Unlock()
	b.Set(ended)
}

// recordEnd moves a sandbox without resources to its final state.
func (s *Service) recordEnd(sb sandbox.Sandbox) (sandbox.Sandbox, error) {
	now := time.Now().UTC()
	to := sb.Cause.Code.Final()
	event := sandbox.EventDestroyed
	if to == sandbox.Failed {
		event = sandbox.EventFailed
	}
	ended, err := s.transition(sb, to,
		func(sb *sandbox.Sandbox) { sb.EndedAt, sb.Handle, sb.Saved, sb.SavedBytes = now, nil, "", 0 },
		sandbox.Event{Time: now, Type: event, Message: sb.Cause.Message, Data: map[string]string{"cause": string(sb.Cause.Code)}})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		// Somebody deleted the row; there is nothing to write and nothing to keep.
		sb.State, sb.EndedAt, sb.Handle = to, now, nil
		return sb, nil
	}
	return ended, err
}

// transition records a transition of sb, the service's latest view of the sandbox. A write may have
// succeeded although the store reported an error: if the row has a different state, transition
// starts from that state, and a transition that was made already counts as success.
func (s *Service) transition(sb sandbox.Sandbox, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) (sandbox.Sandbox, error) {
	next, err := s.step(&sb, to, mutate, ev)
	if sandbox.CodeOf(err) != sandbox.Conflict {
		return next, err
	}
	row, readErr := s.store.SandboxByID(s.ctx, sb.ID)
	switch {
	case readErr != nil:
		return sandbox.Sandbox{}, readErr
	case row.State == to:
		return row, nil
	case row.State == sb.State:
		return sandbox.Sandbox{}, err
	}
	return s.step(&row, to, mutate, ev)
}

// step records a transition and notifies requests that wait for capacity.
func (s *Service) step(sb *sandbox.Sandbox, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) (sandbox.Sandbox, error) {
	if sb.State == sandbox.Paused && to == sandbox.Resuming {
		var next sandbox.Sandbox
		err := s.quotas.Record(s.ctx, s.quotas.ResumeAdmission(sb.Workspace), sb.Workspace, func(a quota.Admission) (err error) {
			next, err = s.store.ResumeSandbox(s.ctx, sb.ID, mutate, ev, a)
			return err
		})
		return next, err
	}
	next, err := s.store.Transition(s.ctx, sb.ID, sb.State, to, mutate, ev)
	if err == nil && (to == sandbox.Paused || to == sandbox.Destroying) {
		s.quotas.Released()
	}
	return next, err
}

// persist repeats a step of a sandbox's end until it succeeds. It fails only if the service closes.
func (s *Service) persist(step string, b *entry, f func() error) error {
	return retry.Persist(s.ctx, s.log.With("sandbox", b.ID), step, f)
}

// move records a change of the sandbox's state, unless the end of the sandbox is recorded. The
// caller has exclusive use of the box.
func (s *Service) move(b *entry, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Over(); err != nil {
		return err
	}
	sb, err := s.transition(b.Sandbox(), to, mutate, ev)
	if err != nil {
		return err
	}
	b.Set(sb)
	s.armTimer(b)
	return nil
}
