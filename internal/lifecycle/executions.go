package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// recoverExecutions goes on with what the server before left: the executions
// that have not ended, and the sandboxes made for one that has.
func (s *Service) recoverExecutions(ctx context.Context) error {
	if s.streams == nil {
		return nil
	}
	live, err := s.store.LiveExecutions(ctx)
	if err != nil {
		return fmt.Errorf("recover executions: %w", err)
	}
	for _, e := range live {
		b, sb, err := s.findID(ctx, e.Sandbox)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return fmt.Errorf("recover executions: %w", err)
		}
		if b == nil {
			b = s.endedBox(sb)
		}
		x := newExecution(b, e, nil)
		s.executions.add(x)
		s.work.Go(func() { s.execute(x) })
	}
	finished, err := s.store.FinishedOneShots(ctx)
	if err != nil {
		return fmt.Errorf("recover executions: %w", err)
	}
	for _, id := range finished {
		if b := s.boxes.byID(id); b != nil {
			s.endOrLog(b, sandbox.Cause{Code: sandbox.CauseCompleted, Message: "its command has ended"})
		}
	}
	return nil
}

// endedBox stands for the box of a sandbox that has ended.
func (s *Service) endedBox(sb sandbox.Sandbox) *entry {
	if !sb.State.Ended() {
		sb.State = sandbox.Failed // there is no row any more
	}
	b := s.newBox(sb.ID)
	b.Set(sb)
	b.Cancel()
	return b
}

// purgeExecutions forgets executions that ended long enough ago, or of which
// their sandbox has too many, with their streams, and input streams that nobody used.
func (s *Service) purgeExecutions(now time.Time) {
	if s.streams == nil {
		return
	}
	before := now.Add(-s.cfg.StreamRetention)
	for s.ctx.Err() == nil {
		list, err := s.store.EndedExecutions(s.ctx, before, s.cfg.KeptExecutions, purgeBatch)
		if err != nil {
			s.logSweep("list ended executions", err)
			return
		}
		for _, e := range list {
			if err := s.forgetExecution(&e); err != nil {
				s.logSweep("forget execution "+string(e.ID), err)
				return
			}
		}
		if len(list) < purgeBatch {
			break
		}
	}
	s.purgeStreams(before)
	s.trimStreams(now)
	s.measureStreams()
}

// measureStreams notes what the streams of each workspace take.
func (s *Service) measureStreams() {
	sizes, err := s.streams.Sizes()
	if err != nil {
		s.logSweep("measure streams", err)
		return
	}
	owners, err := s.store.StreamOwners(s.ctx)
	if err != nil {
		s.logSweep("list owners of streams", err)
		return
	}
	of := map[sandbox.WorkspaceID]int64{}
	for id, n := range sizes {
		of[cmp.Or(owners[id], s.inputs.owner(id))] += n
	}
	s.disk.setStreams(of)
}

// trimStreams forgets the executions that ended first while all streams together
// take more than they may.
func (s *Service) trimStreams(now time.Time) {
	sizes, err := s.streams.Sizes()
	if err != nil {
		s.logSweep("measure streams", err)
		return
	}
	over := -s.cfg.StreamTotalBytes
	for _, n := range sizes {
		over += n
	}
	for over > 0 && s.ctx.Err() == nil {
		list, err := s.store.EndedExecutions(s.ctx, now, 0, purgeBatch)
		if err != nil || len(list) == 0 {
			s.logTrim(over, err)
			return
		}
		for _, e := range list {
			over -= s.kept(&e)
			if err := s.forgetExecution(&e); err != nil {
				s.logSweep("forget execution "+string(e.ID), err)
				return
			}
			if over <= 0 {
				return
			}
		}
	}
}

// logTrim says why streams take more than they may.
func (s *Service) logTrim(over int64, err error) {
	if err != nil {
		s.logSweep("list ended executions", err)
		return
	}
	s.log.Warn("the streams of running executions take more than all streams may", "over_bytes", over)
}

// kept returns the bytes that the streams of an execution hold.
func (s *Service) kept(e *sandbox.Execution) (n int64) {
	ids := map[sandbox.StreamID]bool{e.Stdin: true, e.Stdout.ID: true, e.Stderr.ID: true}
	for id := range ids {
		if info, err := s.streams.Info(id); err == nil { // what is not there takes nothing
			n += info.Bytes
		}
	}
	return n
}

// forgetExecution removes the streams of an execution that has ended, and its row.
func (s *Service) forgetExecution(e *sandbox.Execution) error {
	err := errors.Join(s.streams.Remove(e.Stdout.ID), s.streams.Remove(e.Stderr.ID), s.streams.Remove(e.Stdin))
	if err != nil {
		return err
	}
	return s.store.DeleteExecution(s.ctx, e.ID)
}

// purgeStreams removes streams of no execution: inputs that were made beforehand
// and never used.
func (s *Service) purgeStreams(before time.Time) {
	unused, err := s.streams.Unused(before)
	if err != nil {
		s.logSweep("list streams", err)
		return
	}
	if len(unused) == 0 {
		return
	}
	used, err := s.store.StreamOwners(s.ctx)
	if err != nil {
		s.logSweep("list streams in use", err)
		return
	}
	for _, id := range unused {
		if used[id] != "" {
			continue
		}
		if err := s.streams.Remove(id); err != nil {
			s.logSweep("remove stream", err)
		}
	}
}
