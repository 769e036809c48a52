package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
	"golang.org/x/sync/errgroup"
)

// recover takes over the sandboxes of the previous server; see the package comment.
func (s *Service) recover(ctx context.Context) error {
	rows, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if err := s.saved.RemoveBegun(ctx); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if err := s.savedSweeper.Return(ctx, rows); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	begin := time.Now()
	var g errgroup.Group
	g.SetLimit(recoverWorkers)
	for _, sb := range rows {
		b := s.adopt(sb)
		g.Go(func() error {
			s.recoverBox(ctx, b)
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("recover sandboxes: %w", err)
	}
	if len(rows) > 0 {
		s.log.Info("recovered sandboxes", "rows", len(rows), "running", s.boxes.Count()[sandbox.Running], "took", time.Since(begin))
	}
	return nil
}

// recoverBox makes a sandbox usable again, or continues its end.
func (s *Service) recoverBox(ctx context.Context, b *entry) {
	s.usage.Recall(ctx, b.Box)
	sb := b.Sandbox()
	late := timelimit.Due(&sb, time.Now())
	switch {
	case sb.State == sandbox.Destroying:
		b.Lock()
		defer b.Unlock()
		s.destroyLater(b)
	case late != "" && late != sandbox.CauseIdle: // an idle sandbox is examined once it answers
		s.endOrLog(b, timelimit.Cause(late, &sb))
	case sb.State == sandbox.Provisioning:
		s.endOrLog(b, sandbox.Cause{Code: sandbox.CauseHostRestart, Message: "the server was restarted while the sandbox was being started"})
	case sb.State == sandbox.Running:
		s.readopt(ctx, b)
	default:
		s.settleLater(ctx, b)
		b.Lock()
		defer b.Unlock()
		if b.Context().Err() == nil {
			usage.RecallActivity(b.Box, time.Now())
			s.armTimer(b)
		}
	}
}

// readopt takes over the box of a running sandbox.
func (s *Service) readopt(ctx context.Context, b *entry) {
	err := s.takeOver(ctx, b)
	if ctx.Err() != nil {
		return // the start is given up; nothing is decided about the sandbox
	}
	if err != nil {
		s.log.Warn("sandbox did not survive the restart", "sandbox", b.ID, "error", err)
		s.automatic.Lost(b.Box, sandbox.Cause{Code: sandbox.CauseHostRestart, Message: "its processes did not survive a restart of the server or host"})
		return
	}
	err = s.store.AppendEvent(ctx, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventRecovered, Message: "the sandbox was found again after a restart of the server",
	})
	if err != nil {
		s.log.Error("recovery not recorded", "sandbox", b.ID, "error", err) // the sandbox is as good without
	}
	s.networks.Readopt(ctx, b.Box)
	b.Lock()
	defer b.Unlock()
	usage.RecallActivity(b.Box, time.Now())
	s.armTimer(b)
	s.watchLater(b)
}

// takeOver calls the driver's Recover for the box. It repeats failed attempts for some time, unless
// the driver reports that the box is gone.
func (s *Service) takeOver(ctx context.Context, b *entry) error {
	handle := b.Sandbox().Handle
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := s.driver.Recover(ctx, b.ID, handle)
		if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, retry.Pauses(50*time.Millisecond, 2*time.Second), backoff.WithMaxElapsedTime(recoverTimeout))
	return err
}
