package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// flight is an operation that has a box for itself: only one at a time is under
// way, and calls into the sandbox wait for its end. It runs in the background,
// whatever happens to who asked for it, and ends early only with the sandbox or
// the service.
type flight struct {
	box  *box
	kind flightKind
	done chan struct{} // closed when it has landed
	err  error         // valid when done
}

type flightKind string

// The operations. Who asks for one that is under way joins it, unless joining makes no sense.
const (
	flightPause      flightKind = "pause"
	flightResume     flightKind = "resume"
	flightSettle     flightKind = "settle"
	flightCheckpoint flightKind = "checkpoint"
	flightRestore    flightKind = "restore"
	flightDelete     flightKind = "delete checkpoint"
	flightFork       flightKind = "fork"
	flightSnapshot   flightKind = "snapshot"
	flightNetwork    flightKind = "network"
)

func (k flightKind) joins() bool { return k == flightPause || k == flightResume || k == flightSettle }

// fly runs f as the only operation on b, after those that are under way, or
// joins one of the same kind, and waits for its end. When ctx ends first its
// error is returned and f goes on.
//
// Errors: those of f; Ended when the sandbox's end was decided; Unavailable when
// the service closes.
func (s *Service) fly(ctx context.Context, b *box, kind flightKind, f func(*flight) error) error {
	for {
		own, other, err := s.takeOff(b, kind, f)
		if err != nil {
			return err
		}
		fl := own
		if fl == nil {
			fl = other
		}
		select {
		case <-fl.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if own != nil || other.kind == kind && kind.joins() {
			return fl.err
		}
	}
}

// takeOff starts an operation, or returns the other one that is under way.
func (s *Service) takeOff(b *box, kind flightKind, f func(*flight) error) (own, other *flight, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.over(); err != nil {
		return nil, nil, err
	}
	if other := b.flight.Load(); other != nil {
		return nil, other, nil
	}
	fl := &flight{box: b, kind: kind, done: make(chan struct{})}
	b.flight.Store(fl)
	b.work.Add(1)
	if !s.spawn(func() {
		defer b.work.Done()
		fl.err = f(fl)
		b.mu.Lock()
		b.flight.Store(nil)
		b.mu.Unlock()
		close(fl.done)
	}) {
		b.work.Done()
		b.flight.Store(nil)
		return nil, nil, errClosed
	}
	return fl, nil, nil
}

// over returns an error when nothing can be done with the sandbox any more.
//
// Preconditions: b.mu is held.
func (b *box) over() error {
	if b.ctx.Err() == nil {
		return nil
	}
	if sb := b.sandbox(); sb.State == sandbox.Destroying || sb.State.Ended() {
		return stateError(&sb)
	}
	return errClosed
}

// settled waits until no operation is under way.
func (b *box) settled(ctx context.Context) error {
	for fl := b.flight.Load(); fl != nil; fl = b.flight.Load() {
		select {
		case <-fl.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// move records a change of state of the flight's box, unless its end was decided.
func (s *Service) move(fl *flight, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) error {
	b := fl.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.over(); err != nil {
		return err
	}
	sb, err := s.transition(b.sandbox(), to, mutate, ev)
	if err != nil {
		return err
	}
	b.set(sb)
	s.armTimer(b)
	return nil
}
