package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Wake resumes a paused sandbox, with its memory if possible, and returns when it runs. Concurrent
// callers wait for the same resume. Errors: the errors of [Service.Resume]; Ended.
func (s *Service) Wake(ctx context.Context, b *box.Box) error {
	return b.Exclusively(ctx, box.Resume, func() error {
		e := s.boxes.ByID(b.ID)
		if e == nil {
			return box.ErrClosed // the operation has the box, so that it stays in the index
		}
		return s.suspender.resume(e, sandbox.MemoryPrefer)
	})
}

// resume changes the box of the operation from paused to running.
func (s *suspender) resume(b *entry, memory sandbox.MemoryPolicy) error {
	sb := b.Sandbox()
	switch sb.State {
	case sandbox.Running:
		return nil
	case sandbox.Pausing, sandbox.Resuming: // an operation before was cut short
		if err := s.settle(b); err != nil {
			return err
		}
		if sb = b.Sandbox(); sb.State == sandbox.Running {
			return nil
		}
	case sandbox.Paused:
	default:
		return box.StateError(&sb)
	}
	if err := s.archives.Fetch(b.Context(), b.Box); err != nil {
		return err
	}
	return s.resumeFrom(b, sb.Saved, sb.ImageDigest, memory)
}

// resumeFrom resumes a box that is paused or was abandoned from one of its checkpoints, which is
// based on the root filesystem of digest. It consumes the checkpoint, and removes the state with
// which the box was paused after the resume is recorded.
func (s *suspender) resumeFrom(b *entry, from sandbox.CheckpointID, digest string, memory sandbox.MemoryPolicy) error {
	begin := time.Now()
	lost, err := s.saved.Restorable(s.saved.Path(b.ID, from), memory)
	if err != nil {
		return err
	}
	size := s.saved.SizeOrLog(b.ID, s.saved.Path(b.ID, from))
	before := b.Sandbox()
	filesOnly := s.saved.FilesOnly(s.saved.Path(b.ID, from)) // not as in the row, after it goes back to a checkpoint
	c := sandbox.Change{Saved: &from, SavedBytes: &size, ImageDigest: &digest, FilesOnly: &filesOnly}
	if before.State == sandbox.Pausing { // abandoned
		c.Handle, c.PausedAt = new([]byte), new(begin.UTC())
	}
	resuming := sandbox.Event{Time: begin.UTC(), Type: sandbox.EventResuming, Message: "it is being brought back"}
	if b.again {
		resuming.Type = "" // not recorded
	}
	err = s.states.move(b, sandbox.Resuming, c, resuming)
	if err != nil {
		return err
	}
	from = b.Sandbox().Saved // of an earlier attempt, whose record had its effect after all
	back, err := s.reviver.BringBackOrAnew(b.Box, s.saved.Path(b.ID, from), lost, memory)
	if err == nil && back.Lost != "" {
		back.Late, err = s.starter.late(b)
	}
	if err != nil {
		s.metrics.Operation(box.Resume, begin, err)
		return s.resumeFailed(b, err)
	}
	now := time.Now().UTC()
	err = s.states.move(b, sandbox.Running, sandbox.Change{
		Handle: (*[]byte)(&back.Handle), Saved: new(sandbox.CheckpointID), SavedBytes: new(int64), PausedAt: &time.Time{}, LastActivityAt: &now,
		FilesOnly: new(bool), MemoryLost: &back.Lost,
	}, back.Event(now, begin))
	if err != nil {
		return err // settled later: as the row says
	}
	s.metrics.Operation(box.Resume, begin, nil)
	s.goesOn(b, now, before.Saved, from)
	return nil
}

// goesOn starts the watcher of a box that was recorded as running again at a time, and removes the
// checkpoints that it used.
func (s *suspender) goesOn(b *entry, at time.Time, used ...sandbox.CheckpointID) {
	b.Activity.At(at)
	b.Lock()
	if b.Context().Err() == nil {
		s.timers.arm(b)
		s.watcher.watchLater(b)
	}
	b.Unlock()
	for _, c := range used {
		if err := s.saved.Remove(b.ID, c); err != nil {
			s.log.Error("used checkpoint not removed, trying again soon", "sandbox", b.ID, "checkpoint", c, "error", err)
		}
	}
}

// resumeFailed records that a box that could not be restored stays paused, and returns the reason.
func (s *suspender) resumeFailed(b *entry, reason error) error {
	if b.Context().Err() != nil {
		return reason // its end was decided, or the next server settles it
	}
	s.log.Warn("sandbox could not be resumed", "sandbox", b.ID, "error", reason)
	if err := s.reviver.Destroy(b.Box); err != nil {
		return fmt.Errorf("%w; then: %w", reason, err) // the sweep settles it
	}
	failed := sandbox.Event{Time: time.Now().UTC(), Type: sandbox.EventResumeFailed, Message: sandbox.Explain("it could not be brought back and stays paused", reason)}
	known := b.failure
	b.failure = failed.Message
	if b.again && failed.Message == known {
		failed.Type = "" // not recorded
	}
	if err := s.states.move(b, sandbox.Paused, sandbox.Change{Handle: new([]byte)}, failed); err != nil {
		return err
	}
	if sandbox.CodeOf(reason) == sandbox.Internal {
		return sandbox.Wrap(sandbox.Unavailable, reason, "the sandbox could not be brought back and stays paused; try again")
	}
	return reason
}

// goBack replaces the state of a running or paused box by the checkpoint from, which belongs to the
// box alone and is based on the root filesystem of digest, and resumes the box.
func (s *suspender) goBack(b *entry, from sandbox.CheckpointID, digest string) error {
	switch sb := b.Sandbox(); sb.State {
	case sandbox.Paused:
	case sandbox.Running:
		if err := s.abandon(b, from, digest); err != nil {
			return err
		}
	default:
		return box.StateError(&sb)
	}
	s.executions.ForgetTyped(b.Box)
	return s.resumeFrom(b, from, digest, sandbox.MemoryPrefer)
}

// abandon discards the running state of a box in favor of the checkpoint from, which is based on
// the root filesystem of digest. The sandbox stays pausing until it is resumed from that
// checkpoint, so that no other sandbox can take its share of the quota. After the intent is
// recorded, a restarted server finds the sandbox paused with the checkpoint.
func (s *suspender) abandon(b *entry, from sandbox.CheckpointID, digest string) error {
	filesOnly := s.saved.FilesOnly(s.saved.Path(b.ID, from))
	err := s.states.move(b, sandbox.Pausing, sandbox.Change{Saved: &from, ImageDigest: &digest, FilesOnly: &filesOnly},
		sandbox.Event{Time: time.Now().UTC(), Type: sandbox.EventPausing, Message: "it is being taken back to a checkpoint"})
	if err != nil {
		return err
	}
	s.watcher.unwatch(b)
	if b.Sandbox().Saved != from {
		// The record of an earlier pause had its effect after all: that comes first.
		return errors.Join(sandbox.Errorf(sandbox.Unavailable, "the sandbox was being paused; try again"), s.settle(b))
	}
	if err := s.reviver.Destroy(b.Box); err != nil {
		return err // settled later, the same way
	}
	if err := s.usage.Record(s.ctx, b.Box); err != nil {
		s.log.Error("usage of a sandbox not recorded, trying again soon", "sandbox", b.ID, "error", err)
	}
	b.Agent.Reset()
	return nil
}
