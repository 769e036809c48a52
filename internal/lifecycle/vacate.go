package lifecycle

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// vacateAtOnce bounds the sandboxes that are moved at the same time. Saves have a limit of their own.
const vacateAtOnce = 16

// Vacate moves sandboxes whose worker is being ended: it pauses each that runs, with its memory, for a reason that its events show, and
// resumes it where there is space. It returns when all were tried. A sandbox that cannot be saved goes on where it is; a sandbox that
// cannot be resumed now stays paused, until a call resumes it. Ids of other boxes are passed over.
func (s *Service) Vacate(ctx context.Context, ids []sandbox.ID, why string) {
	var all errgroup.Group
	all.SetLimit(vacateAtOnce)
	for _, id := range ids {
		if e := s.boxes.ByID(id); e != nil && s.work.Running() {
			all.Go(func() error {
				s.vacate(ctx, e, why)
				return nil
			})
		}
	}
	_ = all.Wait() // the errors are logged
}

func (s *Service) vacate(ctx context.Context, e *entry, why string) {
	ran := false
	err := s.suspender.saver.Exclusively(ctx, e.Box, box.Pause, func() error {
		ran = e.Sandbox().State == sandbox.Running // another pause stays as it is
		return s.suspender.pause(e, why, false)
	})
	if err != nil {
		s.log.WarnContext(ctx, "a sandbox was not moved", "sandbox", e.ID, "why", why, "error", err)
		return
	}
	if !ran {
		return
	}
	sb := e.Sandbox()
	if _, err := s.Resume(ctx, sandbox.Caller{Workspace: sb.Workspace}, string(e.ID), ResumeRequest{Memory: sandbox.MemoryRequire}); err != nil {
		s.log.WarnContext(ctx, "a sandbox stays paused", "sandbox", e.ID, "why", why, "error", err)
	}
}
