// Package recovery takes over the sandboxes that the server before has left: it decides by the row of each what becomes of it,
// and has package lifecycle make the changes.
package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
)

const (
	takeOverTimeout = 10 * time.Second // of all attempts to recover a box
	atOnce          = 16               // sandboxes that are taken over at the same time
)

// Host changes sandboxes. Package lifecycle implements it.
type Host interface {
	// Adopt makes a live row findable, and returns its box.
	Adopt(row sandbox.Sandbox) *box.Box
	// End ends a sandbox. An end that cannot be recorded is recorded later.
	End(b *box.Box, cause sandbox.Cause)
	// GoOnEnding goes on with the end of a sandbox whose row has it.
	GoOnEnding(b *box.Box)
	// Over decides about a running sandbox whose box has ended.
	Over(b *box.Box, ended box.Exit)
	// Settle brings a sandbox out of the state of a change that was cut short.
	Settle(ctx context.Context, b *box.Box)
	// Start takes a sandbox in state provisioning to running, in the background, after remove has destroyed its box.
	Start(b *box.Box, remove func(context.Context) error)
	// Watch sets the timer of a sandbox that has not ended and, with its box, watches the box.
	Watch(b *box.Box, running bool)
}

// Store has the rows of sandboxes and their events.
type Store interface {
	eventlog.Store
	// LiveSandboxes returns all that have not ended.
	LiveSandboxes(ctx context.Context) ([]sandbox.Sandbox, error)
}

// Starts counts the starts of sandboxes that may begin again, in the same database as Store.
type Starts interface {
	// StartAgain takes one of the starts that a provisioning sandbox has left, and appends ev. Errors: Conflict if it has none left.
	StartAgain(ctx context.Context, id sandbox.ID, ev sandbox.Event) (sandbox.Sandbox, error)
}

// Deps are the parts that recovery uses. All but Quarantine must be set.
type Deps struct {
	Host       Host
	Store      Store
	Starts     Starts
	Networks   *network.Service
	Saved      *checkpoint.Store
	Sweeper    *checkpoint.Sweeper
	Quarantine *quarantine.Store // nil for none
	Driver     driver.Driver
	Usage      *usage.Recorder
	Log        *slog.Logger
}

// Service takes over the sandboxes of the server before.
type Service struct {
	Deps
	again again
}

// New returns a service that has taken over nothing yet.
func New(deps Deps) *Service {
	return &Service{Deps: deps, again: again{removing: semaphore.NewWeighted(atOnce)}}
}

// Recover takes over all sandboxes. It returns when each that runs can be used again; ends go on in the background. [Service.Start]
// begins the starts again that the server before did not finish.
func (s *Service) Recover(ctx context.Context) error {
	rows, err := s.Store.LiveSandboxes(ctx)
	if err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if err := s.Saved.RemoveBegun(ctx); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if err := s.Sweeper.Return(ctx, rows); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	// Before anything turns boxes into saved states, or saved states into boxes: both need the files.
	if err := s.Saved.Tidy(s.Driver, s.Quarantine); err != nil {
		s.Log.Error("files of earlier servers not removed", "error", err)
	}
	begin := time.Now()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, sb := range rows {
		b := s.Host.Adopt(sb)
		g.Go(func() error {
			s.recover(ctx, b)
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if len(rows) > 0 {
		s.Log.Info("recovered sandboxes", "rows", len(rows), "took", time.Since(begin))
	}
	return nil
}

// recover makes a sandbox usable again, or continues its end.
func (s *Service) recover(ctx context.Context, b *box.Box) {
	s.Usage.Recall(ctx, b)
	sb := b.Sandbox()
	late := timelimit.Due(&sb, time.Now())
	switch {
	case sb.State == sandbox.Destroying:
		s.Host.GoOnEnding(b)
	case late != "" && late != sandbox.CauseIdle: // an idle sandbox is examined once it answers
		s.Host.End(b, timelimit.Cause(late, &sb))
	case sb.State == sandbox.Provisioning:
		s.plan(ctx, b)
	case sb.State == sandbox.Running:
		s.readopt(ctx, b)
	default:
		// The first sweep saves files: that takes long, and ends executions, which are not known yet.
		if sb.State != sandbox.Pausing || !sb.FilesOnly || s.Saved.IsComplete(b.ID, sb.Saved) {
			s.Host.Settle(ctx, b)
		}
		s.Host.Watch(b, false)
	}
}

// readopt takes over the box of a running sandbox.
func (s *Service) readopt(ctx context.Context, b *box.Box) {
	err := TakeOver(ctx, s.Driver, b)
	if ctx.Err() != nil {
		return // the start is given up; nothing is decided about the sandbox
	}
	if err != nil {
		s.Log.Warn("sandbox did not survive the restart", "sandbox", b.ID, "error", err)
		s.Host.Over(b, box.ExitBefore(err))
		return
	}
	err = s.Store.AppendEvent(ctx, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventRecovered, Message: "the sandbox was found again after a restart of the server",
	})
	if err != nil {
		s.Log.Error("recovery not recorded", "sandbox", b.ID, "error", err) // the sandbox is as good without
	}
	s.Networks.Readopt(ctx, b)
	s.Host.Watch(b, true)
}

// TakeOver calls the driver's Recover for a box. It repeats failed attempts for some time, unless
// the driver reports that the box is gone.
func TakeOver(ctx context.Context, d driver.Driver, b *box.Box) error {
	handle := b.Sandbox().Handle
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := d.Recover(ctx, b.ID, handle)
		if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, retry.Pauses(50*time.Millisecond, 2*time.Second), backoff.WithMaxElapsedTime(takeOverTimeout))
	return err
}
