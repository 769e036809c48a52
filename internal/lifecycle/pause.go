package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Pause saves a running sandbox, memory and files, ends its processes and frees
// its memory. It returns when that is done, and at once when it is paused. A
// sandbox that cannot be saved goes on as if nothing had happened. When ctx ends
// first the work goes on.
//
// Errors: NotFound; NotRunning; Ended; Unsupported; DiskFull; Unavailable; the
// context's error.
func (s *Service) Pause(ctx context.Context, c Caller, ref string) (sandbox.Sandbox, error) {
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	err = s.fly(ctx, b, flightPause, func(fl *flight) error { return s.pause(fl, "asked for by "+string(c.User)) })
	return b.sandbox(), err
}

// Resume brings a paused sandbox back: its processes go on where they were. Where
// its memory cannot be brought back any more, because the server runs another
// gVisor or another kind of processor by now, or what was saved is damaged, memory
// says what happens; MemoryLost of the sandbox says what did. It returns when the
// sandbox can be used, and at once when it runs. When it cannot be brought back it
// stays paused and nothing is lost. Who asks while another resume is under way
// gets what comes of that.
//
// Errors: NotFound; NotRunning; Ended; Invalid, naming the field; Unsupported, saying
// why, when what was saved cannot be brought back; QuotaExceeded; Unavailable; the
// context's error.
func (s *Service) Resume(ctx context.Context, c Caller, ref string, req ResumeRequest) (sandbox.Sandbox, error) {
	switch req.Memory {
	case "", sandbox.MemoryPrefer, sandbox.MemoryRequire, sandbox.MemoryDiscard:
	default:
		return sandbox.Sandbox{}, sandbox.InvalidField("memory", "must be prefer, require or discard")
	}
	if err := checkWait(req.WaitForQuota); err != nil {
		return sandbox.Sandbox{}, err
	}
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(b.ctx, stop)()
	e := quota.Request{Workspace: c.Workspace, Count: 1, Resumes: true, MaxWait: req.WaitForQuota}
	err = s.quotas.Admit(waiting, e, func(sandbox.Admission) (int, error) {
		return 0, s.fly(ctx, b, flightResume, func(fl *flight) error { return s.resume(fl, req.Memory) })
	})
	if err != nil && ctx.Err() == nil && waiting.Err() != nil { // it ended while this waited
		b.mu.Lock()
		defer b.mu.Unlock()
		err = cmp.Or(b.over(), err)
	}
	return b.sandbox(), err
}

// stateful returns the box of a live sandbox for an operation on its state.
func (s *Service) stateful(ctx context.Context, c Caller, ref string) (*box, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	if _, err := s.saved.checkpointer(); err != nil {
		return nil, err
	}
	b, sb, err := s.find(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, stateError(&sb)
	}
	return b, nil
}

// pause takes the flight's box from running to paused.
func (s *Service) pause(fl *flight, why string) error {
	b := fl.box
	sb := b.sandbox()
	switch sb.State {
	case sandbox.Paused:
		return nil
	case sandbox.Running:
	default:
		return stateError(&sb)
	}
	begin := time.Now()
	id := sandbox.NewCheckpointID()
	err := s.move(fl, sandbox.Pausing, func(sb *sandbox.Sandbox) { sb.Saved = id },
		sandbox.Event{Time: begin.UTC(), Type: sandbox.EventPausing, Message: clip("its memory and files are being saved: " + why)})
	if err != nil {
		return err
	}
	id = b.sandbox().Saved // of an earlier attempt, whose record had its effect after all
	s.unwatch(b)
	if err := s.save(b, s.saved.path(b.id, id), driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		s.metrics.op(flightPause, begin, err)
		return s.pauseFailed(fl, err)
	}
	data := map[string]string{"took_ms": milliseconds(time.Since(begin))}
	if err := s.recordPaused(fl, "its memory and files are saved", data); err != nil {
		return err // the sweep, or the next server, records it
	}
	s.metrics.op(flightPause, begin, nil)
	return nil
}

// save writes a checkpoint of a started box. Layer is left out when there is no room for it.
func (s *Service) save(b *box, path string, opts driver.CheckpointOptions) error {
	saver, err := s.saved.checkpointer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, saveTimeout)
	defer cancel()
	// What it may take is what it uses now: memory grows no more, the box stands still.
	stats, err := s.driver.Stats(ctx, b.id)
	if err != nil {
		return fmt.Errorf("measure sandbox %s: %w", b.id, err)
	}
	opts.Layer = opts.Layer && s.layers != nil && s.saved.room(stats.MemoryBytes+2*stats.DiskBytes) == nil
	if err := s.saved.room(stats.MemoryBytes + stats.DiskBytes); err != nil {
		return err
	}
	if err := s.saved.makeOwner(path); err != nil {
		return err
	}
	b.transfers.wait(ctx, s.cfg.transferPatience) // no new ones begin while the box is taken
	b.saves.Add(1)
	err = saver.Checkpoint(ctx, b.id, path, opts)
	b.agent.Reset() // its connections do not outlive a checkpoint
	b.saves.Add(1)
	if err != nil {
		return fmt.Errorf("save sandbox %s: %w", b.id, err)
	}
	return nil
}

// pauseFailed has a box that could not be saved go on, and returns the reason.
func (s *Service) pauseFailed(fl *flight, reason error) error {
	b := fl.box
	if b.ctx.Err() != nil {
		return reason // its end was decided, or the next server sorts it out
	}
	err := s.move(fl, sandbox.Running, func(sb *sandbox.Sandbox) { sb.Saved = "" }, sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventPauseFailed, Message: publicReason("it could not be saved and goes on", reason),
	})
	if err != nil {
		return err // the sweep settles it
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		s.watchLater(b)
	}
	return reason
}

// recordPaused records that a box is saved and removes what is left of it.
func (s *Service) recordPaused(fl *flight, message string, data map[string]string) error {
	now := time.Now().UTC()
	size, err := s.saved.size(s.saved.path(fl.box.id, fl.box.sandbox().Saved))
	if err != nil {
		s.log.Error("size of checkpoint not known", "sandbox", fl.box.id, "error", err)
	}
	data["size_bytes"] = strconv.FormatInt(size, 10)
	err = s.move(fl, sandbox.Paused, func(sb *sandbox.Sandbox) { sb.Handle, sb.PausedAt, sb.SavedBytes = nil, now, size },
		sandbox.Event{Time: now, Type: sandbox.EventPaused, Message: message, Data: data})
	if err != nil {
		return err
	}
	return s.clear(fl.box)
}

// clear removes a box of which nothing is needed any more.
func (s *Service) clear(b *box) error {
	s.letGo(b)
	if err := s.recordUsage(b); err != nil {
		s.log.Error("usage of a paused sandbox not recorded, trying again soon", "sandbox", b.id, "error", err)
	}
	b.agent.Reset()
	ctx, cancel := context.WithTimeout(b.ctx, destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, b.id); err != nil {
		s.log.Error("box of a paused sandbox not removed, trying again soon", "sandbox", b.id, "error", err)
	}
	return nil
}

// settleRunning has a box go on whose row says that it was brought back.
func (s *Service) settleRunning(b *box, row sandbox.Sandbox) error {
	b.mu.Lock()
	if err := b.over(); err != nil {
		b.mu.Unlock()
		return err
	}
	from := b.sandbox().Saved
	b.set(row)
	b.mu.Unlock()
	s.goesOn(b, row.LastActivityAt, from)
	return nil
}

// settle finds out what became of an operation that was cut short: of a sandbox
// found pausing or resuming, and the rest of a box of a paused one.
func (s *Service) settle(fl *flight) error {
	b := fl.box
	sb := b.sandbox()
	switch sb.State {
	case sandbox.Paused:
		return s.clear(b)
	case sandbox.Resuming:
		row, err := s.store.SandboxByID(b.ctx, b.id)
		if err != nil {
			return err
		}
		if row.State == sandbox.Running { // that was recorded, although the store reported an error
			return s.settleRunning(b, row)
		}
		// Nobody has been told that it runs: what it did since does not count.
		if err := s.destroyNow(b); err != nil {
			return err
		}
		return s.move(fl, sandbox.Paused, func(sb *sandbox.Sandbox) { sb.Handle = nil }, sandbox.Event{
			Time: time.Now().UTC(), Type: sandbox.EventResumeFailed, Message: "bringing it back was cut short; it is paused as before",
		})
	case sandbox.Pausing:
	default:
		return nil
	}
	if s.saved.whole(b.id, sb.Saved) {
		if err := s.destroyNow(b); err != nil {
			return err
		}
		return s.recordPaused(fl, "its memory and files are saved", map[string]string{})
	}
	if err := s.takeOver(b.ctx, b); err != nil {
		if b.ctx.Err() == nil {
			s.log.Warn("sandbox was lost while it was being paused", "sandbox", b.id, "error", err)
			s.endOrLog(b, sandbox.Cause{Code: sandbox.CauseHostRestart, Message: "the server or host was restarted while it was being paused"})
		}
		return err
	}
	return s.pauseFailed(fl, sandbox.Errorf(sandbox.Unavailable, "saving it was cut short"))
}

func (s *Service) destroyNow(b *box) error {
	s.letGo(b)
	ctx, cancel := context.WithTimeout(b.ctx, destroyTimeout)
	defer cancel()
	return s.driver.Destroy(ctx, b.id)
}

// settleLater settles a sandbox and logs when that does not work: the sweep tries it again.
func (s *Service) settleLater(ctx context.Context, b *box) {
	err := s.fly(ctx, b, flightSettle, s.settle)
	if err != nil && s.ctx.Err() == nil && ctx.Err() == nil && sandbox.CodeOf(err) != sandbox.Unavailable {
		s.log.Error("sandbox not settled, trying again soon", "sandbox", b.id, "state", b.sandbox().State, "error", err)
	}
}

// publicReason is a message for an event: what happened, and what of the reason may be shown.
func publicReason(what string, reason error) string { return fail("", reason, what).cause.Message }

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
