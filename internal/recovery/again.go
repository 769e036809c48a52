package recovery

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Interrupted says why a start was not finished.
const Interrupted = "the server was restarted while the sandbox was being started"

const (
	// startAge is the age up to which the start of a sandbox is begun again: nobody waits for an older sandbox.
	startAge = time.Hour
	// removeTimeout bounds the attempts to remove what an unfinished start has left. A worker may have to connect anew.
	removeTimeout = 2 * time.Minute
	// destroyTimeout bounds an attempt.
	destroyTimeout = time.Minute
)

// again has the sandboxes whose starts begin again.
type again struct {
	removing *semaphore.Weighted // bounds removals

	mu    sync.Mutex
	boxes []*box.Box // guarded by mu
}

// plan decides about a sandbox that was being started: its start begins again, if its row permits it, or it ends.
func (s *Service) plan(ctx context.Context, b *box.Box) {
	err := error(sandbox.Errorf(sandbox.Conflict, "it was asked for too long ago"))
	if now := time.Now().UTC(); now.Sub(b.Sandbox().CreatedAt) < startAge {
		err = s.record(ctx, b, sandbox.Event{
			Sandbox: b.ID, Time: now, Type: sandbox.EventRecovered, Message: Interrupted + "; its start begins again",
		})
	}
	if ctx.Err() != nil {
		return // the start of the server is given up; nothing is decided about the sandbox
	}
	if err != nil {
		s.Log.Info("the start of a sandbox is not begun again", "sandbox", b.ID, "reason", err)
		s.Host.End(b, sandbox.Cause{Code: sandbox.CauseHostRestart, Message: Interrupted})
		return
	}
	s.again.mu.Lock()
	defer s.again.mu.Unlock()
	s.again.boxes = append(s.again.boxes, b)
}

// record records that the start of a sandbox begins again.
func (s *Service) record(ctx context.Context, b *box.Box, ev sandbox.Event) error {
	b.Lock()
	defer b.Unlock()
	sb, err := s.Starts.StartAgain(ctx, b.ID, ev)
	if err == nil {
		b.Set(sb)
	}
	return err
}

// Start begins the starts again that Recover found unfinished. They wait for their turn with all other starts.
func (s *Service) Start() {
	s.again.mu.Lock()
	boxes := s.again.boxes
	s.again.boxes = nil
	s.again.mu.Unlock()
	for _, b := range boxes {
		s.Host.Start(b, func(ctx context.Context) error { return s.remove(ctx, b) })
	}
}

// remove destroys the box of an unfinished start. A box whose handle was not recorded has run nothing of the sandbox; it may
// be left on a worker that is away, which removes it when it is back. A box with a handle is gone when remove succeeds.
func (s *Service) remove(ctx context.Context, b *box.Box) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if len(b.Sandbox().Handle) > 0 { // the driver learns which worker has it
		err := TakeOver(ctx, s.Driver, b)
		if code := sandbox.CodeOf(err); err != nil && code != sandbox.NotFound && code != sandbox.Invalid {
			return err
		}
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, s.destroy(ctx, b) },
		retry.Pauses(50*time.Millisecond, 2*time.Second), retry.Forever())
	return err
}

// destroy is an attempt to destroy a box.
func (s *Service) destroy(ctx context.Context, b *box.Box) error {
	if err := s.again.removing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.again.removing.Release(1)
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	return s.Driver.Destroy(ctx, b.ID)
}
