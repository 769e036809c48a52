package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
	"golang.org/x/sync/errgroup"
)

// recoverer takes over the sandboxes of the server before.
type recoverer struct {
	store        Rows
	events       eventlog.Store
	registrar    *registrar
	starter      *starter
	watcher      *watcher
	suspender    *suspender
	ender        *ender
	timers       *timers
	networks     *network.Service
	saved        *checkpoint.Store
	savedSweeper *checkpoint.Sweeper
	quarantine   *quarantine.Store
	driver       driver.Driver
	usage        *usage.Recorder
	boxes        *box.Index[*entry]
	log          *slog.Logger
}

// recover takes over the sandboxes of the previous server; see the package comment.
func (r *recoverer) recover(ctx context.Context) error {
	rows, err := r.store.LiveSandboxes(ctx)
	if err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if err := r.saved.RemoveBegun(ctx); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if err := r.savedSweeper.Return(ctx, rows); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	r.tidy() // before anything turns boxes into saved states, or saved states into boxes: both need the files
	begin := time.Now()
	var g errgroup.Group
	g.SetLimit(recoverWorkers)
	for _, sb := range rows {
		b := r.registrar.adopt(sb)
		g.Go(func() error {
			r.recoverBox(ctx, b)
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if len(rows) > 0 {
		r.log.Info("recovered sandboxes", "rows", len(rows), "running", r.boxes.Count()[sandbox.Running], "took", time.Since(begin))
	}
	return nil
}

// recoverBox makes a sandbox usable again, or continues its end.
func (r *recoverer) recoverBox(ctx context.Context, b *entry) {
	r.usage.Recall(ctx, b.Box)
	sb := b.Sandbox()
	late := timelimit.Due(&sb, time.Now())
	switch {
	case sb.State == sandbox.Destroying:
		b.Lock()
		defer b.Unlock()
		r.ender.destroyLater(b)
	case late != "" && late != sandbox.CauseIdle: // an idle sandbox is examined once it answers
		r.ender.endOrLog(b, timelimit.Cause(late, &sb))
	case sb.State == sandbox.Provisioning:
		r.ender.endOrLog(b, sandbox.Cause{Code: sandbox.CauseHostRestart, Message: "the server was restarted while the sandbox was being started"})
	case sb.State == sandbox.Running:
		r.readopt(ctx, b)
	default:
		// The first sweep saves files: that takes long, and ends executions, which are not known yet.
		if sb.State != sandbox.Pausing || !sb.FilesOnly || r.saved.IsComplete(b.ID, sb.Saved) {
			r.suspender.settleLater(ctx, b)
		}
		b.Lock()
		defer b.Unlock()
		if b.Context().Err() == nil {
			usage.RecallActivity(b.Box, time.Now())
			r.timers.arm(b)
		}
	}
}

// readopt takes over the box of a running sandbox.
func (r *recoverer) readopt(ctx context.Context, b *entry) {
	err := r.starter.takeOver(ctx, b)
	if ctx.Err() != nil {
		return // the start is given up; nothing is decided about the sandbox
	}
	if err != nil {
		r.log.Warn("sandbox did not survive the restart", "sandbox", b.ID, "error", err)
		r.watcher.over(b, box.ExitBefore(err))
		return
	}
	err = r.events.AppendEvent(ctx, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventRecovered, Message: "the sandbox was found again after a restart of the server",
	})
	if err != nil {
		r.log.Error("recovery not recorded", "sandbox", b.ID, "error", err) // the sandbox is as good without
	}
	r.networks.Readopt(ctx, b.Box)
	b.Lock()
	defer b.Unlock()
	usage.RecallActivity(b.Box, time.Now())
	r.timers.arm(b)
	r.watcher.watchLater(b)
}

// tidy removes the files that no server needs any more.
func (r *recoverer) tidy() {
	if err := r.saved.Tidy(r.driver, r.quarantine); err != nil {
		r.log.Error("files of earlier servers not removed", "error", err)
	}
}
