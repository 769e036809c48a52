package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
	"golang.org/x/sync/errgroup"
)

// sweepLoop runs sweeps until the service closes.
func (s *Service) sweepLoop() {
	ticker := time.NewTicker(s.cfg.SweepInterval)
	defer ticker.Stop()
	var purged time.Time
	for {
		s.sweep()
		if time.Since(purged) >= purgeInterval {
			s.purge()
			purged = time.Now()
		}
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// sweep finds inconsistencies and repairs them. It finds something only after another failure.
func (s *Service) sweep() {
	s.sweepBoxes()
	s.sweepRows()
	s.sweepHost()
	if err := s.savedSweeper.Sweep(s.ctx); err != nil {
		s.logSweep("saved states", err)
	}
	s.snapshots.Sweep()
	if err := s.quotas.EndStale(s.ctx); err != nil {
		s.logSweep("delete reservations of builds that are over", err)
	}
	s.usage.SaveActivity(s.ctx, s.boxes.Boxes(), usage.ActivityLag)
	s.usage.Save(s.ctx, s.boxes.Boxes(), usage.Interval, usage.Lag)
}

// sweepBoxes finds sandboxes whose next step no goroutine will take.
func (s *Service) sweepBoxes() {
	for _, b := range s.boxes.All() {
		if !b.TryLock() {
			continue // its state is being changed at this moment
		}
		sb, wanted, working := b.Sandbox(), b.wanted, b.provisioning
		if sb.State == sandbox.Destroying {
			s.destroyLater(b)
		}
		b.Unlock()
		switch {
		case sb.State == sandbox.Destroying || sb.State.Ended():
		case wanted != nil:
			s.endOrLog(b, *wanted)
		case timelimit.Due(&sb, time.Now()) != "" && !b.Busy(): // the clock was set, or the host slept
			s.work.Go(func() { s.expire(b) }) // it may have to ask the sandbox, or pause it
		case (sb.State == sandbox.Pausing || sb.State == sandbox.Resuming) && !b.Busy():
			s.settleLater(b.Context(), b)
		case s.networks.NeedsMending(b.Box):
			s.work.Go(func() { s.networks.Mend(b.Box) })
		case sb.State == sandbox.Provisioning && !working && time.Since(sb.UpdatedAt) > s.cfg.SweepInterval:
			s.endOrLog(b, *lostCause())
		}
	}
}

func lostCause() *sandbox.Cause {
	return &sandbox.Cause{Code: sandbox.CauseInternal, Message: "the server lost track of it; its log says more"}
}

// sweepRows finds live rows without a box: the row was written although the store reported an
// error.
func (s *Service) sweepRows() {
	rows, err := s.store.LiveSandboxes(s.ctx)
	if err != nil {
		s.logSweep("list live sandboxes", err)
		return
	}
	for _, row := range rows {
		if s.boxes.Has(row.ID) {
			if row.State == sandbox.Destroying { // perhaps replaced although the store said that writing that failed
				s.foundEnding(row)
			}
			continue
		}
		// EntryByID looks again and adopts it when it is still without a box.
		b, _, err := s.EntryByID(s.ctx, row.ID)
		if err != nil {
			s.logSweep("look up sandbox "+string(row.ID), err)
		}
		if b != nil {
			s.log.Error("found a sandbox that nobody works on", "sandbox", row.ID, "state", row.State)
			s.endOrLog(b, *lostCause())
		}
	}
}

// sweepHost destroys boxes on the host that belong to no live sandbox. A box that is being made is
// safe, because it is in the index before it exists on the host.
func (s *Service) sweepHost() {
	ids, err := s.driver.List(s.ctx)
	if err != nil {
		s.logSweep("list boxes", err)
		return
	}
	unknown := map[sandbox.ID]bool{}
	for _, id := range ids {
		if b := s.boxes.ByID(id); b != nil && b.Sandbox().State == sandbox.Paused {
			s.settleLater(s.ctx, b) // its pause could not remove it
		}
		if !s.boxes.Has(id) {
			unknown[id] = true
		}
	}
	if len(unknown) == 0 {
		return
	}
	// A box leaves the host before it leaves the index, so a box that was destroyed
	// since it was listed looks unknown. Ids are not used twice: the second list is without it.
	if ids, err = s.driver.List(s.ctx); err != nil {
		s.logSweep("list boxes again", err)
		return
	}
	var g errgroup.Group
	g.SetLimit(sweepWorkers)
	for _, id := range ids {
		if unknown[id] {
			g.Go(func() error {
				s.destroyOrphan(id)
				return nil
			})
		}
	}
	_ = g.Wait() // returns nothing: each logs its own
}

// destroyOrphan destroys a box without a sandbox. Close waits for it: a server that stops soon after
// its start leaves no box of the server before.
func (s *Service) destroyOrphan(id sandbox.ID) {
	s.log.Warn("destroying a box without a sandbox", "box", id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, id); err != nil {
		s.logSweep("destroy box "+string(id), err)
		return
	}
	s.metrics.Orphan()
}

// purge deletes everything whose retention time has passed.
func (s *Service) purge() {
	now := time.Now()
	var before time.Time
	if s.cfg.Retention > 0 {
		before = now.Add(-s.cfg.Retention)
	}
	for s.ctx.Err() == nil {
		n, err := s.store.Purge(s.ctx, now, before, purgeBatch)
		if err != nil {
			s.logSweep("purge", err)
		}
		if err != nil || n < purgeBatch {
			break
		}
	}
	s.executions.Purge(now)
	s.quotas.Tidy(now)
}

// logSweep logs a failure that the next sweep tries again.
func (s *Service) logSweep(what string, err error) {
	if s.ctx.Err() == nil {
		s.log.Error("sweep: "+what, "error", err)
	}
}
