package lifecycle

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lookup"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
)

// Rows lists and deletes the rows of sandboxes, whatever their state.
type Rows interface {
	// LiveStates returns the states of all that have not ended.
	LiveStates(ctx context.Context) (map[sandbox.ID]sandbox.State, error)
	// Purge forgets at most limit idempotency keys that expired before now and,
	// unless endedBefore is zero, at most limit sandboxes that ended and snapshots
	// that were deleted before it and that no other names. It returns how many of
	// these two went.
	Purge(ctx context.Context, now, endedBefore time.Time, limit int) (int64, error)
}

// sweeper finds stuck and orphaned objects, and repairs them.
type sweeper struct {
	interval, retention time.Duration

	store        Rows
	finder       *lookup.Finder[*entry]
	owner        *sandbox.Ownership
	boxes        *box.Index[*entry]
	driver       driver.Driver
	ender        *ender
	expirer      *expirer
	suspender    *suspender
	networks     *network.Service
	executions   *execution.Service
	snapshots    *snapshot.Service
	savedSweeper *checkpoint.Sweeper
	quotas       *quota.Controller
	usage        *usage.Recorder
	metrics      *telemetry.Metrics
	work         *background.Group
	ctx          context.Context // of work
	log          *slog.Logger

	settling atomic.Bool // a goroutine settles the sandboxes that an earlier sweep found
}

// run runs sweeps until the service closes.
func (w *sweeper) run() {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	var purged time.Time
	for {
		w.sweep()
		if time.Since(purged) >= purgeInterval {
			w.purge()
			purged = time.Now()
		}
		select {
		case <-ticker.C:
		case <-w.ctx.Done():
			return
		}
	}
}

// sweep finds inconsistencies and repairs them. It finds something only after another failure.
func (w *sweeper) sweep() {
	w.sweepBoxes()
	w.sweepRows()
	w.sweepHost()
	if err := w.savedSweeper.Sweep(w.ctx); err != nil {
		w.logSweep("saved states", err)
	}
	w.snapshots.Sweep()
	if err := w.quotas.EndStale(w.ctx); err != nil {
		w.logSweep("delete reservations of builds that are over", err)
	}
	w.usage.SaveActivity(w.ctx, w.boxes.Boxes(), usage.ActivityLag)
	w.usage.Save(w.ctx, w.boxes.Boxes(), usage.Interval, usage.Lag)
}

// sweepBoxes finds sandboxes whose next step no goroutine will take.
func (w *sweeper) sweepBoxes() {
	var unsettled []*entry
	for _, b := range w.boxes.All() {
		if !b.TryLock() {
			continue // its state is being changed at this moment
		}
		sb, wanted, working := b.Sandbox(), b.wanted, b.provisioning
		if sb.State == sandbox.Destroying {
			w.ender.destroyLater(b)
		}
		b.Unlock()
		switch {
		case sb.State == sandbox.Destroying || sb.State.Ended():
		case wanted != nil:
			w.ender.endOrLog(b, *wanted)
		case timelimit.Due(&sb, time.Now()) != "" && !b.Busy(): // the clock was set, or the host slept
			w.work.Go(func() { w.expirer.expire(b) }) // it may have to ask the sandbox, or pause it
		case (sb.State == sandbox.Pausing || sb.State == sandbox.Resuming) && !b.Busy():
			unsettled = append(unsettled, b)
		case w.networks.NeedsMending(b.Box):
			w.work.Go(func() { w.networks.Mend(b.Box) })
		case sb.State == sandbox.Provisioning && !working && time.Since(sb.UpdatedAt) > w.interval:
			w.ender.endOrLog(b, *lostCause())
		}
	}
	if len(unsettled) > 0 && w.settling.CompareAndSwap(false, true) {
		w.work.Go(func() { // a few at a time: they may save files, and the time for a save includes its wait for others
			defer w.settling.Store(false)
			background.Each(unsettled, settleWorkers, func(b *entry) { w.suspender.settleLater(b.Context(), b) })
		})
	}
}

func lostCause() *sandbox.Cause {
	return &sandbox.Cause{Code: sandbox.CauseInternal, Message: "the server lost track of it; its log says more"}
}

// sweepRows finds live rows without a box: the row was written although the store reported an
// error.
func (w *sweeper) sweepRows() {
	states, err := w.store.LiveStates(w.ctx) // not the rows: this is done every few seconds
	if err != nil {
		w.logSweep("list live sandboxes", err)
		return
	}
	for id, state := range states {
		if w.boxes.Has(id) {
			if state == sandbox.Destroying {
				w.sweepEnding(id)
			}
			continue
		}
		// EntryByID looks again and adopts it when it is still without a box.
		b, sb, err := w.finder.EntryByID(w.ctx, id)
		if err != nil {
			w.logSweep("look up sandbox "+string(id), err)
		}
		if b != nil {
			w.log.Error("found a sandbox that nobody works on", "sandbox", id, "state", sb.State)
			w.ender.endOrLog(b, *lostCause())
		}
	}
}

// sweepEnding sees to the end of a sandbox that was perhaps replaced although the store said that writing that failed.
func (w *sweeper) sweepEnding(id sandbox.ID) {
	if b := w.boxes.ByID(id); b == nil || b.Sandbox().State == sandbox.Destroying {
		return // it has ended, or it is being destroyed
	}
	row, err := w.finder.Row(w.ctx, id)
	if err != nil {
		w.logSweep("look up sandbox "+string(id), err)
		return
	}
	if row.State == sandbox.Destroying {
		w.ender.foundEnding(row)
	}
}

// sweepHost destroys boxes on the host that belong to no live sandbox. A box that is being made is
// safe, because it is in the index before it exists on the host. Close does not cut it short at once: a server
// that stops soon after its start leaves no box of the server before. But it does not wait for a worker that is away: another server waits for its turn.
func (w *sweeper) sweepHost() {
	ctx, cancel := background.Longer(w.ctx, sweepGrace)
	defer cancel()
	ids, err := w.driver.List(ctx)
	if err != nil {
		w.logSweep("list boxes", err)
		return
	}
	unknown := map[sandbox.ID]bool{}
	for _, id := range ids {
		if b := w.boxes.ByID(id); b != nil && b.Sandbox().State == sandbox.Paused {
			w.suspender.settleLater(w.ctx, b) // its pause could not remove it
		}
		if !w.boxes.Has(id) && (w.owner.Owns(id) || w.isOver(id)) {
			unknown[id] = true
		}
	}
	if len(unknown) == 0 {
		return
	}
	// A box leaves the host before it leaves the index, so a box that was destroyed
	// since it was listed looks unknown. Ids are not used twice: the second list is without it.
	if ids, err = w.driver.List(ctx); err != nil {
		w.logSweep("list boxes again", err)
		return
	}
	ids = slices.DeleteFunc(ids, func(id sandbox.ID) bool { return !unknown[id] })
	background.Each(ids, sweepWorkers, w.destroyOrphan)
}

// isOver reports whether a sandbox of another server has ended, or has no row. The box may be left from when this server's worker was another's.
func (w *sweeper) isOver(id sandbox.ID) bool {
	sb, err := w.finder.Row(w.ctx, id)
	return sandbox.CodeOf(err) == sandbox.NotFound || err == nil && sb.State.Ended()
}

// destroyOrphan destroys a box without a sandbox.
func (w *sweeper) destroyOrphan(id sandbox.ID) {
	w.log.Warn("destroying a box without a sandbox", "box", id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), destroyTimeout)
	defer cancel()
	if err := w.driver.Destroy(ctx, id); err != nil {
		w.logSweep("destroy box "+string(id), err)
		return
	}
	w.metrics.Orphan()
}

// purge deletes everything whose retention time has passed.
func (w *sweeper) purge() {
	now := time.Now()
	var before time.Time
	if w.retention > 0 {
		before = now.Add(-w.retention)
	}
	for w.ctx.Err() == nil {
		n, err := w.store.Purge(w.ctx, now, before, purgeBatch)
		if err != nil {
			w.logSweep("purge", err)
		}
		if err != nil || n < purgeBatch {
			break
		}
	}
	w.executions.Purge(now)
	w.quotas.Tidy(now)
}

// logSweep logs a failure that the next sweep tries again.
func (w *sweeper) logSweep(what string, err error) {
	if w.ctx.Err() == nil {
		w.log.Error("sweep: "+what, "error", err)
	}
}
