package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// vacateAtOnce bounds the sandboxes that are moved at the same time. Saves have a limit of their own.
	vacateAtOnce = 16
	// moveTimeout bounds the resume of a sandbox that was paused to be moved, also after the end of the call.
	moveTimeout = 10 * time.Minute
	// returnTimeout limits the attempts to resume sandboxes that found no space. Another machine can start in that time.
	returnTimeout = 30 * time.Minute
)

// Vacate moves sandboxes whose worker is being ended: it pauses each that runs, with its memory, for a reason that its events show, and
// resumes it where there is space. It returns when all were tried, with the sandboxes that were just changing their state, as at their
// start, and all before the service has taken over the sandboxes: they can be tried again. A sandbox that cannot be saved goes on where it is. A sandbox that cannot be resumed stays paused; for half an
// hour it is tried again, unless it is paused by another call meanwhile. Ids of other boxes are passed over. After the end of ctx no other sandbox is paused.
func (s *Service) Vacate(ctx context.Context, ids []sandbox.ID, why string) (busy []sandbox.ID) {
	if !s.recovered.Load() {
		return ids // else a sandbox could be saved and ended while its box is taken over
	}
	var all errgroup.Group
	var mu sync.Mutex // guards busy and stuck
	var stuck []move
	all.SetLimit(vacateAtOnce)
	for _, id := range ids {
		e := s.boxes.ByID(id)
		if e == nil {
			continue
		}
		all.Go(func() error {
			if ctx.Err() != nil || !s.work.Running() {
				return nil
			}
			m := move{entry: e, why: why}
			err := s.moveAway(ctx, &m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, errBusy):
				busy = append(busy, id)
			case err != nil:
				stuck = append(stuck, m)
			}
			return nil
		})
	}
	_ = all.Wait() // no error
	if len(stuck) > 0 {
		s.work.Go(func() { s.moveBack(stuck) }) // unless the service is closing
	}
	return busy
}

// move is a sandbox that is paused to be resumed elsewhere.
type move struct {
	*entry
	why    string
	pauses int64 // of the entry, after its pause
}

// errBusy is the error of a move that could not be tried.
var errBusy = errors.New("the sandbox is changing its state")

// moveAway pauses a sandbox that runs and resumes it. Errors: errBusy; the reason why it stays paused.
func (s *Service) moveAway(ctx context.Context, m *move) error {
	ran := false
	err := s.suspender.saver.Exclusively(ctx, m.Box, box.Move, func() error {
		state := m.Sandbox().State
		if state == sandbox.Paused { // another pause stays as it is
			return nil
		}
		ran = state == sandbox.Running
		err := s.suspender.pause(m.entry, m.why, false)
		m.pauses = m.entry.pauses.Load()
		return err
	})
	switch {
	case err != nil && !ran && !m.Sandbox().State.Ended():
		return errBusy
	case err != nil:
		s.log.WarnContext(ctx, "a sandbox was not moved", "sandbox", m.ID, "why", m.why, "error", err)
		return nil
	case !ran:
		return nil
	}
	if err := s.arrive(context.WithoutCancel(ctx), m, false); err != nil {
		s.log.WarnContext(ctx, "a sandbox that was to be moved is paused, trying again for a while", "sandbox", m.ID, "why", m.why, "error", err)
		return err
	}
	return nil
}

// arrive resumes a sandbox that was paused to be moved, unless it was paused by another call meanwhile. again is whether that failed before: another
// failure with the same reason has no event. Errors: the reason why it stays paused.
func (s *Service) arrive(ctx context.Context, m *move, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	_, err := s.resumeAs(ctx, m.entry, box.Move, 0, func() error {
		if m.entry.pauses.Load() != m.pauses || m.Sandbox().State == sandbox.Running {
			return nil
		}
		m.entry.again = again
		defer func() { m.entry.again = false }()
		return s.suspender.resume(m.entry, sandbox.MemoryRequire)
	})
	if m.Context().Err() != nil {
		return nil // it has ended, or the service closes
	}
	return err
}

// moveBack resumes sandboxes that found no space when they were moved, each as soon as there is space.
func (s *Service) moveBack(stuck []move) {
	_, err := backoff.Retry(s.ctx, func() (struct{}, error) {
		var last error
		stuck = slices.DeleteFunc(stuck, func(m move) bool {
			err := s.arrive(s.ctx, &m, true)
			if err != nil {
				last = err
			}
			return err == nil
		})
		return struct{}{}, last
	}, retry.Pauses(time.Second, 2*time.Minute), backoff.WithMaxElapsedTime(returnTimeout))
	if err == nil || s.ctx.Err() != nil {
		return
	}
	for _, m := range stuck {
		s.log.Warn("a sandbox that was to be moved stays paused until a call resumes it", "sandbox", m.ID, "why", m.why, "error", err)
	}
}
