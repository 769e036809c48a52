package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/sandbox"
)

// probeTime is how long an agent may take to answer a probe.
const probeTime = 2 * time.Second

// quiet makes connecting to the box wait, and closes the connections to its agent, which the agent has to
// take part in. It always ends with freezeQuiet, or with releasing the whole weight of dialing. With lenient the
// agent may keep its ends open, which matters only when memory is saved.
func (b *box) quiet(ctx context.Context, lenient bool) error {
	if err := b.conns.dialing.Acquire(ctx, allDialing); err != nil {
		return context.Cause(ctx)
	}
	err := b.alive(ctx)
	if err == nil {
		var ask func(context.Context, int) error
		if b.handover {
			ask = b.gvisor.HangUp
		}
		if err = b.conns.hangUp(ctx, ask); lenient && ctx.Err() == nil {
			err = nil
		}
	}
	if err != nil {
		b.conns.dialing.Release(allDialing)
	}
	return err
}

// freeze stops the execution of the box, and makes connecting to it wait, because the agent could
// not answer. It always ends with thaw, after which the box goes on where it was, or with stop.
func (b *box) freeze(ctx context.Context) error {
	if err := b.conns.dialing.Acquire(ctx, allDialing); err != nil {
		return context.Cause(ctx)
	}
	if err := b.alive(ctx); err != nil {
		b.conns.dialing.Release(allDialing)
		return err
	}
	return b.freezeQuiet(ctx)
}

// freezeQuiet is freeze when the whole weight of dialing is acquired. It releases that if it fails.
//
// That the box may be frozen is recorded first: a box whose server died stays frozen, so a later
// driver must thaw it.
func (b *box) freezeQuiet(ctx context.Context) error {
	if err := b.setFrozen(true); err != nil {
		b.conns.dialing.Release(allDialing)
		return err
	}
	err := b.gvisor.Pause(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, control.ErrNotAsked) {
		b.conns.dialing.Release(allDialing)
		return errors.Join(err, b.setFrozen(false))
	}
	return errors.Join(err, b.thaw(ctx))
}

// alive reports whether gVisor answers. A stopped process would execute the freeze at an unknown
// later time.
func (b *box) alive(ctx context.Context) error {
	err := b.gvisor.Ping(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's process does not answer; it may be stopped")
	default: // the following steps notice an end of gVisor
		return nil
	}
}

// thaw lets the box go on after freeze.
func (b *box) thaw(ctx context.Context) error {
	defer b.conns.dialing.Release(allDialing)
	return b.resume(ctx)
}

// resume lets the box go on, whichever server froze it.
func (b *box) resume(ctx context.Context) error {
	err := b.gvisor.Resume(ctx)
	if err != nil && !b.hasEnded() {
		return fmt.Errorf("thaw box %s: %w", b.id, err)
	}
	return b.setFrozen(false)
}

func (b *box) setFrozen(frozen bool) error { return b.update(func(s *state) { s.Frozen = frozen }) }

// thawStale thaws a box that an earlier driver may have frozen when it died. It must not thaw a box
// that is not frozen: such a box answers.
func (b *box) thawStale(ctx context.Context) {
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var err error
	if _, perr := b.agent.Health(probe); perr == nil {
		err = b.setFrozen(false)
	} else {
		err = b.resume(ctx)
	}
	if err != nil {
		b.host.logger.Warn("a box that was being saved when the server ended may still be frozen", "sandbox", b.id, "error", err)
	}
}
