package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lookup"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/recovery"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/usage"
)

// Pause saves the memory and files of a running sandbox, ends its processes and frees its memory.
// It returns when the sandbox is paused, at once if it is paused already. A sandbox that cannot be
// saved continues to run unchanged. If ctx ends first, the pause continues.
//
// Errors: NotFound; NotRunning; Ended; Unsupported; DiskFull; Unavailable; the context's error.
func (s *Service) Pause(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error) {
	return s.suspender.pauseFor(ctx, c, ref, false)
}

// PauseFiles is [Service.Pause] without the memory: it ends the processes of the sandbox and saves its files.
// A resume starts the sandbox anew with its files. A sandbox that cannot be saved continues without the
// processes that it had. Errors: also Unsupported if the sandbox ends with its command.
func (s *Service) PauseFiles(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error) {
	return s.suspender.pauseFor(ctx, c, ref, true)
}

// Resume resumes a paused sandbox; its processes continue. If its memory cannot be restored any
// more, because the server runs another version of gVisor or another kind of processor, or because
// the checkpoint is damaged, req.Memory determines the result, and MemoryLost of the sandbox
// reports it. Resume returns when the sandbox is ready, at once if it runs already. If it cannot be
// restored, it stays paused and loses nothing. Concurrent callers share a resume.
//
// Errors: NotFound; NotRunning; Ended; Invalid, naming the field; Unsupported, with the reason, if
// the checkpoint cannot be restored; QuotaExceeded; Unavailable; the context's error.
func (s *Service) Resume(ctx context.Context, c sandbox.Caller, ref string, req ResumeRequest) (sandbox.Sandbox, error) {
	if err := cmp.Or(req.Memory.Check(), quota.CheckWait(req.WaitForQuota)); err != nil {
		return sandbox.Sandbox{}, err
	}
	b, err := s.suspender.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.resumeAs(ctx, b, box.Resume, req.WaitForQuota, func() error { return s.suspender.resume(b, req.Memory) })
}

// resumeAs admits a sandbox and resumes it as an operation.
func (s *Service) resumeAs(ctx context.Context, b *entry, kind box.OperationKind, wait time.Duration, resume func() error) (sandbox.Sandbox, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(b.Context(), stop)()
	e := quota.Request{Workspace: b.Sandbox().Workspace, Count: 1, Resumes: true, MaxWait: wait}
	err := s.quotas.Admit(waiting, e, func(quota.Admission) (int, error) {
		return 0, b.Exclusively(ctx, kind, resume)
	})
	if err != nil && ctx.Err() == nil && waiting.Err() != nil { // it ended while this waited
		b.Lock()
		defer b.Unlock()
		err = cmp.Or(b.Over(), err)
	}
	return b.Sandbox(), err
}

// suspender pauses and resumes sandboxes, and settles what a killed server or an error has left in
// between.
type suspender struct {
	finder      *lookup.Finder[*entry]
	states      *states
	interrupter *execution.Interrupter
	saver       *savedbox.Saver
	archives    *archiver.Service
	starter     *starter
	reviver     *savedbox.Reviver
	watcher     *watcher
	ender       *ender
	timers      *timers
	saved       *checkpoint.Store
	usage       *usage.Recorder
	events      eventlog.Store
	driver      driver.Driver
	executions  *execution.Service
	metrics     *telemetry.Metrics
	work        *background.Group
	ctx         context.Context // of work
	log         *slog.Logger
}

// stateful returns the box of a live sandbox for an operation on its state.
func (s *suspender) stateful(ctx context.Context, c sandbox.Caller, ref string) (*entry, error) {
	if !s.work.Running() {
		return nil, box.ErrClosed
	}
	if _, err := s.saved.Checkpointer(); err != nil {
		return nil, err
	}
	b, sb, err := s.finder.Entry(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, box.StateError(&sb)
	}
	return b, nil
}

// pauseFor is [Service.Pause] or [Service.PauseFiles].
func (s *suspender) pauseFor(ctx context.Context, c sandbox.Caller, ref string, filesOnly bool) (sandbox.Sandbox, error) {
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	err = s.saver.Exclusively(ctx, b.Box, box.Pause, func() error { return s.pause(b, "asked for by "+string(c.User), filesOnly) })
	return b.Sandbox(), err
}

// pause changes the box of the operation from running to paused.
func (s *suspender) pause(b *entry, why string, filesOnly bool) error {
	b.pauses.Add(1)
	sb := b.Sandbox()
	switch sb.State {
	case sandbox.Paused:
		return nil
	case sandbox.Running:
	default:
		return box.StateError(&sb)
	}
	if filesOnly && s.interrupter.HasOneShot(b.Box) {
		return sandbox.Errorf(sandbox.Unsupported, "the sandbox ends with its command, which a pause without memory would end; pause it with its memory")
	}
	if filesOnly && b.doubtful.Load() != nil { // before its processes are ended
		if err := s.saver.CheckFiles(b.Box); err != nil {
			s.noteRefusal(b, err)
			return err
		}
	}
	begin, id := time.Now(), sandbox.NewCheckpointID()
	err := s.states.move(b, sandbox.Pausing, sandbox.Change{Saved: &id, FilesOnly: &filesOnly},
		sandbox.Event{Time: begin.UTC(), Type: sandbox.EventPausing, Message: sandbox.OneLine(sandbox.SavedParts(filesOnly) + " are being saved: " + why)})
	if err != nil {
		return err
	}
	s.watcher.unwatch(b)
	if b.Sandbox().FilesOnly != filesOnly { // the record of another pause had its effect after all
		return s.pauseFailed(b, sandbox.Errorf(sandbox.Unavailable, "the sandbox was being paused in another way; try again"))
	}
	return s.savePaused(b, begin)
}

// savePaused saves the box of a sandbox in state pausing, as its row says, and records that it is paused. A box
// that cannot be saved goes on.
func (s *suspender) savePaused(b *entry, begin time.Time) error {
	sb := b.Sandbox() // the row may be of an earlier attempt, whose record had its effect after all
	opts := driver.CheckpointOptions{Stop: true, Layer: !sb.FilesOnly, FilesOnly: sb.FilesOnly}
	err := s.saver.Save(b.Box, s.saved.Path(b.ID, sb.Saved), opts)
	if failed := new(savedbox.SaveError); sb.FilesOnly && (err == nil || errors.As(err, &failed)) {
		b.doubtful.Store(nil)
		if err != nil {
			b.doubtful.Store(new(string))
		}
	}
	if err != nil {
		s.metrics.Operation(box.Pause, begin, err)
		return s.pauseFailed(b, err)
	}
	if err := s.recordPaused(b, map[string]string{"took_ms": milliseconds(time.Since(begin))}); err != nil {
		return err // the sweep, or the next server, records it
	}
	s.metrics.Operation(box.Pause, begin, nil)
	return nil
}

// pauseFailed lets a box that could not be saved continue, and returns the reason.
func (s *suspender) pauseFailed(b *entry, reason error) error {
	if b.Context().Err() != nil {
		return reason // its end was decided, or the next server sorts it out
	}
	failed := pauseFailure(reason)
	err := s.states.move(b, sandbox.Running, sandbox.Change{Saved: new(sandbox.CheckpointID), FilesOnly: new(bool)}, failed)
	if err != nil {
		return err // the sweep settles it
	}
	if b.doubtful.Load() != nil {
		b.doubtful.Store(&failed.Message)
	}
	b.Lock()
	defer b.Unlock()
	if b.Context().Err() == nil {
		s.watcher.watchLater(b)
	}
	return reason
}

// noteRefusal records that the pause of a doubtful box was refused, once for each reason: callers and the idle timeout repeat
// refused pauses.
func (s *suspender) noteRefusal(b *entry, reason error) {
	refused := pauseFailure(reason)
	if b.Context().Err() != nil || *b.doubtful.Load() == refused.Message {
		return
	}
	refused.Sandbox = b.ID
	if err := s.events.AppendEvent(b.Context(), refused); err != nil {
		s.log.Error("refusal of a pause not recorded", "sandbox", b.ID, "error", err) // the next one is
		return
	}
	b.doubtful.Store(&refused.Message)
}

// pauseFailure returns the event of a pause that failed for the reason.
func pauseFailure(reason error) sandbox.Event {
	return sandbox.Event{
		Time: time.Now().UTC(), Type: sandbox.EventPauseFailed, Message: sandbox.Explain("it could not be saved and goes on", reason),
	}
}

// recordPaused records that a box is saved and frees its resources.
func (s *suspender) recordPaused(b *entry, data map[string]string) error {
	now, sb := time.Now().UTC(), b.Sandbox()
	size := s.saved.SizeOrLog(b.ID, s.saved.Path(b.ID, sb.Saved))
	data["size_bytes"], data["memory"] = strconv.FormatInt(size, 10), strconv.FormatBool(!sb.FilesOnly)
	err := s.states.move(b, sandbox.Paused, sandbox.Change{Handle: new([]byte), PausedAt: &now, SavedBytes: &size},
		sandbox.Event{Time: now, Type: sandbox.EventPaused, Message: sandbox.SavedParts(sb.FilesOnly) + " are saved", Data: data})
	if err != nil {
		return err
	}
	return s.clear(b)
}

// clear removes a box that is not needed any more.
func (s *suspender) clear(b *entry) error {
	b.Link.Disconnect(false)
	s.usage.Finish(s.ctx, b.Box)
	if err := s.usage.Record(s.ctx, b.Box); err != nil {
		s.log.Error("usage of a paused sandbox not recorded, trying again soon", "sandbox", b.ID, "error", err)
	}
	b.Agent.Reset()
	ctx, cancel := context.WithTimeout(b.Context(), destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, b.ID); err != nil {
		s.log.Error("box of a paused sandbox not removed, trying again soon", "sandbox", b.ID, "error", err)
	}
	return nil
}

// settleRunning lets a box continue whose row says that it was resumed.
func (s *suspender) settleRunning(b *entry, row sandbox.Sandbox) error {
	b.Lock()
	if err := b.Over(); err != nil {
		b.Unlock()
		return err
	}
	from := b.Sandbox().Saved
	b.Set(row)
	b.Unlock()
	s.goesOn(b, row.LastActivityAt, from)
	return nil
}

// settle determines the outcome of an interrupted operation: it settles a sandbox in state pausing
// or resuming, and removes the remains of the box of a paused sandbox.
func (s *suspender) settle(b *entry) error {
	sb := b.Sandbox()
	switch sb.State {
	case sandbox.Paused:
		return s.clear(b)
	case sandbox.Resuming:
		row, err := s.states.store.SandboxByID(b.Context(), b.ID)
		if err != nil {
			return err
		}
		if row.State == sandbox.Running { // that was recorded, although the store reported an error
			return s.settleRunning(b, row)
		}
		// Nobody has been told that it runs: what it did since does not count.
		if err := s.reviver.Destroy(b.Box); err != nil {
			return err
		}
		return s.states.move(b, sandbox.Paused, sandbox.Change{Handle: new([]byte)}, sandbox.Event{
			Time: time.Now().UTC(), Type: sandbox.EventResumeFailed, Message: "bringing it back was cut short; it is paused as before",
		})
	case sandbox.Pausing:
	default:
		return nil
	}
	if s.saved.IsComplete(b.ID, sb.Saved) {
		if err := s.reviver.Destroy(b.Box); err != nil {
			return err
		}
		return s.recordPaused(b, map[string]string{})
	}
	if err := recovery.TakeOver(b.Context(), s.driver, b.Box); err != nil {
		if b.Context().Err() == nil {
			s.log.Warn("sandbox was lost while it was being paused", "sandbox", b.ID, "error", err)
			s.ender.endOrLog(b, sandbox.Cause{Code: sandbox.CauseHostRestart, Message: "the server or host was restarted while it was being paused"})
		}
		return err
	}
	if sb.FilesOnly { // its processes may have ended already
		return s.savePaused(b, time.Now())
	}
	return s.pauseFailed(b, sandbox.Errorf(sandbox.Unavailable, "saving it was cut short"))
}

// settleLater settles a sandbox and logs a failure, after which the sweep tries again.
func (s *suspender) settleLater(ctx context.Context, b *entry) {
	err := b.Exclusively(ctx, box.Settle, func() error { return s.settle(b) })
	if err != nil && s.ctx.Err() == nil && ctx.Err() == nil && sandbox.CodeOf(err) != sandbox.Unavailable {
		s.log.Error("sandbox not settled, trying again soon", "sandbox", b.ID, "state", b.Sandbox().State, "error", err)
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
