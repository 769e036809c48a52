package lifecycle

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// vacateAtOnce bounds the sandboxes that are moved at the same time. Saves have a limit of their own.
	vacateAtOnce = 16
	// moveTimeout bounds the resume of a sandbox that was paused to be moved, also after the end of the call.
	moveTimeout = 10 * time.Minute
)

// Vacate moves sandboxes whose worker is being ended: it pauses each that runs, with its memory, for a reason that its events show, and
// resumes it where there is space. It returns when all were tried, with the sandboxes that were just changing their state, as at their
// start: they can be tried again. A sandbox that cannot be saved goes on where it is; a sandbox that cannot be resumed now stays paused, until a call
// resumes it. Ids of other boxes are passed over. After the end of ctx no other sandbox is paused.
func (s *Service) Vacate(ctx context.Context, ids []sandbox.ID, why string) (busy []sandbox.ID) {
	var all errgroup.Group
	var mu sync.Mutex // guards busy
	all.SetLimit(vacateAtOnce)
	for _, id := range ids {
		e := s.boxes.ByID(id)
		if e == nil {
			continue
		}
		all.Go(func() error {
			if ctx.Err() == nil && s.work.Running() && !s.vacate(ctx, e, why) {
				mu.Lock()
				defer mu.Unlock()
				busy = append(busy, id)
			}
			return nil
		})
	}
	_ = all.Wait() // the errors are logged
	return busy
}

// vacate moves a sandbox, and reports whether that could be tried.
func (s *Service) vacate(ctx context.Context, e *entry, why string) bool {
	ran := false
	err := s.suspender.saver.Exclusively(ctx, e.Box, box.Pause, func() error {
		ran = e.Sandbox().State == sandbox.Running // another pause stays as it is
		return s.suspender.pause(e, why, false)
	})
	sb := e.Sandbox()
	switch {
	case err != nil && !ran && !sb.State.Ended():
		return false
	case err != nil:
		s.log.WarnContext(ctx, "a sandbox was not moved", "sandbox", e.ID, "why", why, "error", err)
		return true
	case !ran:
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	if _, err := s.Resume(ctx, sandbox.Caller{Workspace: sb.Workspace}, string(e.ID), ResumeRequest{Memory: sandbox.MemoryRequire}); err != nil {
		s.log.WarnContext(ctx, "a sandbox stays paused", "sandbox", e.ID, "why", why, "error", err)
	}
	return true
}
