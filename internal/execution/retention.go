package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// deleteBatch is how many executions are deleted at a time.
const deleteBatch = 500

// Recover continues executions of an earlier server that have not ended, and ends sandboxes that
// were created for an execution that has ended. It leaves the sandboxes of other servers alone.
func (s *Service) Recover(ctx context.Context) error {
	if s.streams == nil {
		return nil
	}
	live, err := s.store.LiveExecutions(ctx)
	if err != nil {
		return fmt.Errorf("recover executions: %w", err)
	}
	for _, e := range live {
		if !s.owner.Owns(e.Sandbox) {
			continue
		}
		b, sb, err := s.sandboxes.FindID(ctx, e.Sandbox)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return fmt.Errorf("recover executions: %w", err)
		}
		if b == nil {
			b = s.endedBox(sb)
		}
		x := newExecution(b, e, nil)
		s.live.add(x)
		s.work.Go(func() { s.execute(x) })
	}
	finished, err := s.store.FinishedOneShots(ctx)
	if err != nil {
		return fmt.Errorf("recover executions: %w", err)
	}
	for _, id := range finished {
		if !s.owner.Owns(id) {
			continue
		}
		b, _, err := s.sandboxes.FindID(ctx, id)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return fmt.Errorf("recover executions: %w", err)
		}
		if b != nil {
			s.sandboxes.End(b, sandbox.Cause{Code: sandbox.CauseCompleted, Message: "its command has ended"})
		}
	}
	s.work.Go(func() { s.stored.Run(s.ctx) })
	return nil
}

// endedBox returns a box for a sandbox that has ended.
func (s *Service) endedBox(sb sandbox.Sandbox) *box.Box {
	if !sb.State.Ended() {
		sb.State = sandbox.Failed // there is no row any more
	}
	b := box.New(s.work, sb.ID, agentapi.NewMemory(0).NewClient(nil)) // nothing calls its agent
	b.Lock()
	defer b.Unlock()
	b.Set(sb)
	b.Cancel()
	return b
}

// Purge deletes old executions, and the oldest executions of a sandbox that has too many, with
// their streams. It also deletes unused input streams, and measures the streams that remain. Of several
// servers the primary deletes, and the others only measure.
func (s *Service) Purge(now time.Time) {
	if s.streams == nil {
		return
	}
	before := now.Add(-s.cfg.Retention)
	for s.owner.Primary() && s.ctx.Err() == nil {
		list, err := s.store.EndedExecutions(s.ctx, before, s.cfg.MaxEnded, deleteBatch)
		if err != nil {
			s.logFailure("list ended executions", err)
			return
		}
		for _, e := range list {
			if err := s.forgetExecution(&e); err != nil {
				s.logFailure("forget execution "+string(e.ID), err)
				return
			}
		}
		if len(list) < deleteBatch {
			break
		}
	}
	if s.owner.Primary() {
		s.purgeStreams(before)
	}
	size, err := sizes(s.ctx, s.streams, s.stored)
	if err != nil {
		s.logFailure("measure streams", err)
		return
	}
	if s.owner.Primary() {
		s.trimStreams(now, size)
	}
	s.measureStreams(size)
}

// measureStreams adds the sizes of all streams to the total of each workspace.
func (s *Service) measureStreams(size map[sandbox.StreamID]int64) {
	owners, err := s.store.StreamOwners(s.ctx)
	if err != nil {
		s.logFailure("list owners of streams", err)
		return
	}
	of := map[sandbox.WorkspaceID]int64{}
	for id, n := range size {
		of[cmp.Or(owners[id], s.inputs.owner(id))] += n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamBytes = of
}

// trimStreams deletes ended executions, oldest end first, while all streams together, whose sizes it is given, exceed their
// limit. It removes the deleted streams from the sizes.
func (s *Service) trimStreams(now time.Time, size map[sandbox.StreamID]int64) {
	over := -s.cfg.StreamTotal
	for _, n := range size {
		over += n
	}
	for over > 0 && s.ctx.Err() == nil {
		list, err := s.store.EndedExecutions(s.ctx, now, 0, deleteBatch)
		if err != nil || len(list) == 0 {
			s.logTrim(over, err)
			return
		}
		for _, e := range list {
			if err := s.forgetExecution(&e); err != nil {
				s.logFailure("forget execution "+string(e.ID), err)
				return
			}
			over -= take(size, &e)
			if over <= 0 {
				return
			}
		}
	}
}

// logTrim logs why the streams exceed their limit.
func (s *Service) logTrim(over int64, err error) {
	if err != nil {
		s.logFailure("list ended executions", err)
		return
	}
	s.log.Warn("the streams of running executions take more than all streams may", "over_bytes", over)
}

// take removes the streams of an execution from sizes, and returns their bytes.
func take(sizes map[sandbox.StreamID]int64, e *sandbox.Execution) (n int64) {
	for _, id := range []sandbox.StreamID{e.Stdout.ID, e.Stderr.ID, e.Stdin} { // two may be the same
		n += sizes[id]
		delete(sizes, id)
	}
	return n
}

// Forget deletes the record and the output of an execution that has ended. Errors: NotFound; Conflict when it
// has not ended.
func (s *Service) Forget(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID) error {
	_, e, err := s.findExecution(ctx, c, id)
	switch {
	case err != nil:
		return err
	case !e.State.Ended():
		return sandbox.Errorf(sandbox.Conflict, "the execution %s has not ended; cancel it first", id)
	}
	s.live.remove(id) // its end is recorded, and finish may not have removed it yet
	return s.forgetExecution(&e)
}

// forgetExecution deletes an ended execution: its streams, then its row, then its stored output.
func (s *Service) forgetExecution(e *sandbox.Execution) error {
	err := errors.Join(s.streams.Remove(e.Stdout.ID), s.streams.Remove(e.Stderr.ID), s.streams.Remove(e.Stdin))
	if err != nil {
		return err
	}
	if err := s.store.DeleteExecution(s.ctx, e.ID); err != nil {
		return err
	}
	s.stored.Remove(e)
	// A reader may have fetched the output from the object store before the row was deleted.
	return errors.Join(s.streams.Remove(e.Stdout.ID), s.streams.Remove(e.Stderr.ID))
}

// purgeStreams deletes input streams that no command ever used.
func (s *Service) purgeStreams(before time.Time) {
	unused, err := s.streams.Unused(before)
	if err != nil {
		s.logFailure("list streams", err)
		return
	}
	if len(unused) == 0 {
		return
	}
	used, err := s.store.StreamOwners(s.ctx)
	if err != nil {
		s.logFailure("list streams in use", err)
		return
	}
	for _, id := range unused {
		if used[id] != "" {
			continue
		}
		if err := s.streams.RemoveUnused(id, before); err != nil { // a command may have been given it since
			s.logFailure("remove stream", err)
		}
	}
}
