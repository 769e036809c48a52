package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/workerrows"
)

// checkPlaces returns an error if sandboxes are on workers of another server than they belong to, after a change of replica.active. Errors: Conflict.
func checkPlaces(ctx context.Context, cfg config.Config, st *store.Store) error {
	workers, err := workerrows.New(st.DB).List(ctx)
	if err != nil {
		return err
	}
	live, err := st.Sandboxes.LiveSandboxes(ctx)
	if err != nil {
		return err
	}
	return fleet.Misplaced(cfg.Replica.Parts(), workers, live)
}

// mustDivide reports whether a server with parts must work on all sandboxes first, because sandboxes are on workers of another server than they belong to.
// Errors: the database cannot be reached.
func mustDivide(ctx context.Context, cfg config.Config) (bool, error) {
	st, err := openOtherStore(ctx, cfg)
	switch {
	case sandbox.CodeOf(err) == sandbox.Unavailable || ctx.Err() != nil:
		return false, err
	case err != nil:
		return false, nil // the start judges it
	}
	err = checkPlaces(ctx, cfg, st)
	if sandbox.CodeOf(err) == sandbox.Conflict {
		return true, st.Close()
	}
	return false, errors.Join(err, st.Close())
}

const (
	// dividePause is the time between two looks at the sandboxes that must be moved.
	dividePause = 2 * time.Second
	// divideAgain is the time after which a sandbox that could not be moved is tried again.
	divideAgain = time.Minute
)

// divide moves sandboxes to workers of their parts, if this server works on all parts, and ends the server then.
func (p *parts) divide(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) {
	if p.fleet == nil || p.ranges != sandbox.AllRanges || cfg.Replica.Active == 1 {
		return
	}
	log.Warn("sandboxes are on workers of other parts, so this server works on all sandboxes until it has moved them; it needs a worker for each part")
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var task sync.WaitGroup
	task.Go(func() {
		tried := map[sandbox.ID]time.Time{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(dividePause):
			}
			if p.moveApart(ctx, tried) || checkPlaces(ctx, cfg, p.store) != nil {
				continue
			}
			select {
			case p.lost <- errors.New("all sandboxes are on workers of their parts: the server starts again, to work on a part"):
			default: // it ends for another reason
			}
			return
		}
	})
	cu.Add(func() {
		cancel()
		task.Wait()
	})
}

// moveApart moves the sandboxes that are on workers of other parts, unless it has tried that a short time ago, and reports whether there were any.
func (p *parts) moveApart(ctx context.Context, tried map[sandbox.ID]time.Time) bool {
	now := time.Now()
	apart := p.fleet.Apart()
	ids := slices.DeleteFunc(slices.Clone(apart), func(id sandbox.ID) bool { return now.Sub(tried[id]) < divideAgain })
	for _, id := range ids {
		tried[id] = now
	}
	for _, id := range p.Lifecycle.Vacate(ctx, ids, "several servers are to divide the sandboxes") {
		delete(tried, id)
	}
	return len(apart) > 0
}
