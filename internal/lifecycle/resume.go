package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
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
		return s.resume(e, sandbox.MemoryPrefer)
	})
}

// resume changes the box of the operation from paused to running.
func (s *Service) resume(b *entry, memory sandbox.MemoryPolicy) error {
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
	return s.resumeFrom(b, sb.Saved, sb.ImageDigest, memory)
}

// resumeFrom resumes a box that is paused or was abandoned from one of its checkpoints, which is
// based on the root filesystem of digest. It consumes the checkpoint, and removes the state with
// which the box was paused after the resume is recorded.
func (s *Service) resumeFrom(b *entry, from sandbox.CheckpointID, digest string, memory sandbox.MemoryPolicy) error {
	begin := time.Now()
	lost, err := s.saved.Restorable(s.saved.Path(b.ID, from), memory)
	if err != nil {
		return err
	}
	size, err := s.saved.Size(s.saved.Path(b.ID, from))
	if err != nil {
		s.log.Error("size of checkpoint not known", "sandbox", b.ID, "error", err)
	}
	before := b.Sandbox().Saved
	err = s.move(b, sandbox.Resuming, func(sb *sandbox.Sandbox) {
		if sb.State == sandbox.Pausing { // abandoned
			sb.Handle, sb.PausedAt = nil, begin.UTC()
		}
		sb.Saved, sb.SavedBytes, sb.ImageDigest = from, size, digest
	},
		sandbox.Event{Time: begin.UTC(), Type: sandbox.EventResuming, Message: "it is being brought back"})
	if err != nil {
		return err
	}
	from = b.Sandbox().Saved // of an earlier attempt, whose record had its effect after all
	back, err := s.bringBackOrAnew(b, s.saved.Path(b.ID, from), lost, memory)
	if err != nil {
		s.metrics.Operation(box.Resume, begin, err)
		return s.resumeFailed(b, err)
	}
	now := time.Now().UTC()
	err = s.move(b, sandbox.Running, func(sb *sandbox.Sandbox) {
		sb.Handle, sb.Saved, sb.SavedBytes, sb.PausedAt, sb.LastActivityAt = back.handle, "", 0, time.Time{}, now
		sb.ImageDigest, sb.MemoryLost = back.digest, back.lost
	}, back.event(now, begin))
	if err != nil {
		return err // settled later: as the row says
	}
	s.metrics.Operation(box.Resume, begin, nil)
	s.goesOn(b, now, before, from)
	return nil
}

// goesOn starts the watcher of a box that was recorded as running again at a time, and removes the
// checkpoints that it used.
func (s *Service) goesOn(b *entry, at time.Time, used ...sandbox.CheckpointID) {
	b.Activity.At(at)
	b.Lock()
	if b.Context().Err() == nil {
		s.armTimer(b)
		s.watchLater(b)
	}
	b.Unlock()
	for _, c := range used {
		if err := s.saved.Remove(b.ID, c); err != nil {
			s.log.Error("used checkpoint not removed, trying again soon", "sandbox", b.ID, "checkpoint", c, "error", err)
		}
	}
}

// slowestRead is the assumed minimum rate of reading saved state, in bytes per second.
const slowestRead = 32 << 20

// bringBack restores a box from its saved state, and configures its agent with the sandbox's
// identity.
func (s *Service) bringBack(b *entry, path string) (driver.Handle, error) {
	select {
	case s.slots <- struct{}{}:
	case <-b.Context().Done():
		return nil, b.Context().Err()
	}
	defer func() { <-s.slots }()
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return nil, err
	}
	sb := b.Sandbox()
	size, err := s.saved.Size(path)
	if err != nil {
		s.log.Error("size of checkpoint not known", "sandbox", b.ID, "error", err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), s.cfg.StartTimeout+time.Duration(size/slowestRead)*time.Second)
	defer cancel()
	// Its reference may mean another image by now.
	img, rootfs, err := s.images.Resolve(ctx, sb.ImageDigest)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "%s", sandbox.Explain("the root filesystem of the sandbox is not on this server", err))
	}
	if err != nil {
		return nil, fmt.Errorf("image of sandbox %s: %w", b.ID, err)
	}
	handle, err := saver.Restore(ctx, s.spec(&sb, rootfs), path)
	if err != nil {
		err = fmt.Errorf("restore sandbox %s: %w", b.ID, err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = &muteError{err}
		}
		return nil, err
	}
	b.Meter.Begin(time.Now().UTC())
	b.Agent.Reset()
	if err := s.networks.Connect(ctx, b.Box); err != nil {
		return nil, fmt.Errorf("network of restored sandbox %s: %w", b.ID, err)
	}
	cfg := s.environments.Agent(&sb, &img)
	cfg.Restored = true
	if err := environment.Configure(ctx, b.Box, cfg); err != nil {
		return nil, &muteError{fmt.Errorf("agent of restored sandbox %s: %w", b.ID, box.AgentError(err))}
	}
	return handle, nil
}

// resumeFailed records that a box that could not be restored stays paused, and returns the reason.
func (s *Service) resumeFailed(b *entry, reason error) error {
	if b.Context().Err() != nil {
		return reason // its end was decided, or the next server settles it
	}
	s.log.Warn("sandbox could not be resumed", "sandbox", b.ID, "error", reason)
	if err := s.destroyNow(b); err != nil {
		return fmt.Errorf("%w; then: %w", reason, err) // the sweep settles it
	}
	err := s.move(b, sandbox.Paused, func(sb *sandbox.Sandbox) { sb.Handle = nil }, sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventResumeFailed, Message: sandbox.Explain("it could not be brought back and stays paused", reason),
	})
	if err != nil {
		return err
	}
	if sandbox.CodeOf(reason) == sandbox.Internal {
		return sandbox.Wrap(sandbox.Unavailable, reason, "the sandbox could not be brought back and stays paused; try again")
	}
	return reason
}
