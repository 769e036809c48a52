package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/modbox/modbox/internal/sandbox"
)

// probeTime is how long an agent may take to answer whether it runs at all.
const probeTime = 2 * time.Second

// hold makes the box stand still, and whoever wants to connect to it wait: the
// agent could not greet. Its end is always release, after which the box goes on
// where it was, or stop.
//
// That the box may stand still is written down first: gVisor itself goes on
// holding a box whose server died, so a later driver must let it go.
func (b *box) hold(ctx context.Context) error {
	if err := b.doors.Acquire(ctx, allDoors); err != nil {
		return context.Cause(ctx)
	}
	if err := b.alive(ctx); err != nil {
		b.doors.Release(allDoors)
		return err
	}
	if err := b.setHeld(true); err != nil {
		b.doors.Release(allDoors)
		return err
	}
	// gVisor counts holds and releases, and ends when they do not match. So this one
	// is not given up half way when ctx ends; it takes half a millisecond.
	err := call(context.WithoutCancel(ctx), holdRPC, b.dir, boot.ContMgrPause, nil, nil)
	if err == nil {
		return nil
	}
	if errors.Is(err, errNotAsked) {
		b.doors.Release(allDoors)
		return errors.Join(err, b.setHeld(false))
	}
	return errors.Join(err, b.release(ctx))
}

// alive asks gVisor for something that it answers at once. A process that stands
// still could not be held, and nobody could tell when it does what it was asked.
func (b *box) alive(ctx context.Context) error {
	id := string(b.id)
	err := call(ctx, b.answer, b.dir, boot.ContMgrProcesses, &id, nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's process does not answer; it may be stopped")
	default: // an end of gVisor is seen by what follows
		return nil
	}
}

// release lets the box go on after hold.
func (b *box) release(ctx context.Context) error {
	defer b.doors.Release(allDoors)
	return b.goOn(ctx)
}

// goOn lets the box go on, whoever held it.
func (b *box) goOn(ctx context.Context) error {
	err := call(context.WithoutCancel(ctx), holdRPC, b.dir, boot.ContMgrResume, nil, nil)
	if err != nil && !b.hasEnded() {
		return fmt.Errorf("let box %s go on: %w", b.id, err)
	}
	return b.setHeld(false)
}

func (b *box) setHeld(held bool) error { return b.update(func(s *state) { s.Held = held }) }

// unstick lets a box go on that an earlier driver may have held when it died. It
// must not release a box that nobody holds: that one answers.
func (d *Driver) unstick(ctx context.Context, b *box) {
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var err error
	if _, perr := b.agent.Health(probe); perr == nil {
		err = b.setHeld(false)
	} else {
		err = b.goOn(ctx)
	}
	if err != nil {
		d.cfg.Logger.Warn("a box that was being saved when the server ended may stand still", "sandbox", b.id, "error", err)
	}
}
