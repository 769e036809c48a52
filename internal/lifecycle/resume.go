package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// resume takes the flight's box from paused to running.
func (s *Service) resume(fl *flight, memory sandbox.MemoryPolicy) error {
	sb := fl.box.sandbox()
	switch sb.State {
	case sandbox.Running:
		return nil
	case sandbox.Pausing, sandbox.Resuming: // an operation before was cut short
		if err := s.settle(fl); err != nil {
			return err
		}
		if sb = fl.box.sandbox(); sb.State == sandbox.Running {
			return nil
		}
	case sandbox.Paused:
	default:
		return stateError(&sb)
	}
	return s.resumeFrom(fl, sb.Saved, sb.ImageDigest, memory)
}

// resumeFrom brings a box that is paused, or was abandoned, back from one of its
// checkpoints, which lies on the root filesystem of digest and is then consumed.
// What it was paused with is gone once this is recorded.
func (s *Service) resumeFrom(fl *flight, from sandbox.CheckpointID, digest string, memory sandbox.MemoryPolicy) error {
	b := fl.box
	begin := time.Now()
	lost, err := s.saved.restorable(s.saved.path(b.id, from), memory)
	if err != nil {
		return err
	}
	size, err := s.saved.size(s.saved.path(b.id, from))
	if err != nil {
		s.log.Error("size of checkpoint not known", "sandbox", b.id, "error", err)
	}
	before := b.sandbox().Saved
	err = s.move(fl, sandbox.Resuming, func(sb *sandbox.Sandbox) {
		if sb.State == sandbox.Pausing { // abandoned
			sb.Handle, sb.PausedAt = nil, begin.UTC()
		}
		sb.Saved, sb.SavedBytes, sb.ImageDigest = from, size, digest
	},
		sandbox.Event{Time: begin.UTC(), Type: sandbox.EventResuming, Message: "it is being brought back"})
	if err != nil {
		return err
	}
	from = b.sandbox().Saved // of an earlier attempt, whose record had its effect after all
	back, err := s.bringBackOrAnew(b, s.saved.path(b.id, from), lost, memory)
	if err != nil {
		s.metrics.op(flightResume, begin, err)
		return s.resumeFailed(fl, err)
	}
	now := time.Now().UTC()
	err = s.move(fl, sandbox.Running, func(sb *sandbox.Sandbox) {
		sb.Handle, sb.Saved, sb.SavedBytes, sb.PausedAt, sb.LastActivityAt = back.handle, "", 0, time.Time{}, now
		sb.ImageDigest, sb.MemoryLost = back.digest, back.lost
	}, back.event(now, begin))
	if err != nil {
		return err // settled later: as the row says
	}
	s.metrics.op(flightResume, begin, nil)
	s.goesOn(b, now, before, from)
	return nil
}

// goesOn watches over a box that was recorded as running again at that time, and
// removes the checkpoints that it came from.
func (s *Service) goesOn(b *box, at time.Time, used ...sandbox.CheckpointID) {
	b.activity.at(at)
	b.mu.Lock()
	if b.ctx.Err() == nil {
		s.armTimer(b)
		s.watchLater(b)
	}
	b.mu.Unlock()
	for _, c := range used {
		if err := s.saved.remove(b.id, c); err != nil {
			s.log.Error("used checkpoint not removed, trying again soon", "sandbox", b.id, "checkpoint", c, "error", err)
		}
	}
}

// slowestRead is how much a second of what was saved is read at least, in bytes.
const slowestRead = 32 << 20

// bringBack makes a box that runs from what was saved, and tells its agent who it is.
func (s *Service) bringBack(b *box, path string) (driver.Handle, error) {
	select {
	case s.slots <- struct{}{}:
	case <-b.ctx.Done():
		return nil, b.ctx.Err()
	}
	defer func() { <-s.slots }()
	saver, err := s.saved.checkpointer()
	if err != nil {
		return nil, err
	}
	sb := b.sandbox()
	size, err := s.saved.size(path)
	if err != nil {
		s.log.Error("size of checkpoint not known", "sandbox", b.id, "error", err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, s.cfg.StartTimeout+time.Duration(size/slowestRead)*time.Second)
	defer cancel()
	// Its reference may mean another image by now.
	img, rootfs, err := s.images.Resolve(ctx, sb.ImageDigest)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "%s", publicReason("the root filesystem of the sandbox is not on this server", err))
	}
	if err != nil {
		return nil, fmt.Errorf("image of sandbox %s: %w", b.id, err)
	}
	handle, err := saver.Restore(ctx, s.spec(&sb, rootfs), path)
	if err != nil {
		err = fmt.Errorf("restore sandbox %s: %w", b.id, err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = &muteError{err}
		}
		return nil, err
	}
	b.meter.begin(time.Now().UTC())
	b.agent.Reset()
	if err := s.connect(ctx, b); err != nil {
		return nil, fmt.Errorf("network of restored sandbox %s: %w", b.id, err)
	}
	cfg := s.agentConfig(&sb, &img)
	cfg.Restored = true
	if err := s.configure(ctx, b, cfg); err != nil {
		return nil, &muteError{fmt.Errorf("agent of restored sandbox %s: %w", b.id, AgentError(err))}
	}
	return handle, nil
}

// resumeFailed has a box that could not be brought back stay paused, and returns the reason.
func (s *Service) resumeFailed(fl *flight, reason error) error {
	b := fl.box
	if b.ctx.Err() != nil {
		return reason // its end was decided, or the next server settles it
	}
	s.log.Warn("sandbox could not be resumed", "sandbox", b.id, "error", reason)
	if err := s.destroyNow(b); err != nil {
		return fmt.Errorf("%w; then: %w", reason, err) // the sweep settles it
	}
	err := s.move(fl, sandbox.Paused, func(sb *sandbox.Sandbox) { sb.Handle = nil }, sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventResumeFailed, Message: publicReason("it could not be brought back and stays paused", reason),
	})
	if err != nil {
		return err
	}
	if sandbox.CodeOf(reason) == sandbox.Internal {
		return sandbox.Wrap(sandbox.Unavailable, reason, "the sandbox could not be brought back and stays paused; try again")
	}
	return reason
}
