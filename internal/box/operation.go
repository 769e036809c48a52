package box

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// Operation is a change of a sandbox as a whole. It has the box exclusively: calls into the
// sandbox, and other operations, wait for its end. It runs in the background, whatever happens
// to the request that began it, and ends early only with the sandbox or the service.
type Operation struct {
	kind OperationKind
	done chan struct{} // closed when the operation has ended
	err  error         // valid after done is closed
}

// OperationKind names an operation, in metrics too.
type OperationKind string

// The operations.
const (
	Pause            OperationKind = "pause"
	Resume           OperationKind = "resume"
	Move             OperationKind = "move" // a pause or resume that no call asked for
	Settle           OperationKind = "settle"
	Checkpoint       OperationKind = "checkpoint"
	Restore          OperationKind = "restore"
	DeleteCheckpoint OperationKind = "delete checkpoint"
	Fork             OperationKind = "fork"
	Snapshot         OperationKind = "snapshot"
	Network          OperationKind = "network"
	Environment      OperationKind = "environment"
	Archive          OperationKind = "archive"
	Fetch            OperationKind = "fetch"
)

// shared reports whether a second request for the operation shares the result of the first.
func (k OperationKind) shared() bool { return k == Pause || k == Resume || k == Settle || k == Fetch }

// Busy reports whether an operation has the box.
func (b *Box) Busy() bool { return b.operation.Load() != nil }

// Exclusively runs f as the only operation on the box, after the operations that are under
// way, and waits for its end. A pause, resume, settle or fetch that finds another of its kind under
// way shares its result instead. If ctx ends first, Exclusively returns its error and f goes on.
//
// Errors: f's; Ended if the sandbox's end is recorded; Unavailable if the service closes.
func (b *Box) Exclusively(ctx context.Context, kind OperationKind, f func() error) error {
	for {
		own, other, err := b.begin(kind, f)
		if err != nil {
			return err
		}
		op := own
		if op == nil {
			op = other
		}
		select {
		case <-op.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if own != nil || other.kind == kind && kind.shared() {
			return op.err
		}
	}
}

// ExclusivelyInTurn is Exclusively for an operation that must wait for its turn if the sandbox runs: turn waits for it, and release ends it
// after the operation. Meanwhile calls into the sandbox, and other operations, go on. A sandbox has one turn at a time. If ctx ends first,
// ExclusivelyInTurn returns its error. Then the wait of a pause goes on, and the wait of any other operation ends; f goes on if it has begun.
//
// Errors: as Exclusively; turn's.
func (b *Box) ExclusivelyInTurn(ctx context.Context, kind OperationKind, turn func(context.Context) (release func(), err error), f func() error) error {
	result := make(chan error, 1)
	if !b.group.Go(func() {
		wait, cancel := context.WithCancel(b.ctx)
		defer cancel()
		if kind != Pause { // a caller that tries again and again would leave any number of them
			defer context.AfterFunc(ctx, cancel)()
		}
		result <- b.inTurn(wait, kind, turn, f)
	}) {
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Box) inTurn(wait context.Context, kind OperationKind, turn func(context.Context) (release func(), err error), f func() error) error {
	err := b.queue.Acquire(wait, 1)
	if err == nil {
		defer b.queue.Release(1)
		err = b.Settled(wait) // so that it has no turn in vain
	}
	if err == nil && b.View().Sandbox.State == sandbox.Running {
		var release func()
		if release, err = turn(wait); err == nil {
			defer release()
		}
	}
	if err != nil && b.ctx.Err() == nil {
		return err
	}
	return b.Exclusively(context.WithoutCancel(b.ctx), kind, f) // its error says how the sandbox has ended
}

// begin starts an operation, or returns the other operation that is under way.
func (b *Box) begin(kind OperationKind, f func() error) (own, other *Operation, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.Over(); err != nil {
		return nil, nil, err
	}
	if other := b.operation.Load(); other != nil {
		return nil, other, nil
	}
	op := &Operation{kind: kind, done: make(chan struct{})}
	b.operation.Store(op)
	b.Work.Add(1)
	if !b.group.Go(func() {
		defer b.Work.Done()
		op.err = f()
		b.mu.Lock()
		b.operation.Store(nil)
		b.mu.Unlock()
		close(op.done)
	}) {
		b.Work.Done()
		b.operation.Store(nil)
		return nil, nil, ErrClosed
	}
	return op, nil, nil
}

// Over returns an error if nothing can be done with the sandbox any more: Ended, or
// Unavailable if the service closes.
//
// Preconditions: the lock is held.
func (b *Box) Over() error {
	if b.ctx.Err() == nil {
		return nil
	}
	if sb := b.Sandbox(); sb.State == sandbox.Destroying || sb.State.Ended() {
		return StateError(&sb)
	}
	return ErrClosed
}

// Settled returns when no operation has the box, or with ctx's error.
func (b *Box) Settled(ctx context.Context) error {
	for op := b.operation.Load(); op != nil; op = b.operation.Load() {
		select {
		case <-op.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
