package gvisor

import (
	"context"
	"errors"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// Start implements [driver.Driver].
func (d *Driver) Start(ctx context.Context, id sandbox.ID) (err error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	ctx, span := tracing.Start(ctx, "gvisor: start")
	defer func() { span.End(err) }()
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.started() {
		return sandbox.Errorf(sandbox.Conflict, "box %s was started before", id)
	}
	if b.hasEnded() {
		return b.endedError()
	}
	// Recorded before it is done: after a crash in between, a later driver finds a box whose agent
	// does not answer, instead of mistaking the box for unused.
	if err := b.update(func(s *state) { s.Started = true }); err != nil {
		return publicError(err, "start box %s", id)
	}
	if err := b.gvisor.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox could not be started")
	}
	b.protectInOOM()
	b.noteHelper()
	return nil
}

// Wait implements [driver.Driver].
func (d *Driver) Wait(ctx context.Context, id sandbox.ID) (driver.Exit, error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lookup(id)
	if err != nil {
		return driver.Exit{}, err
	}
	select {
	case <-b.ended:
		return b.exit, nil
	default:
	}
	select {
	case <-b.ended:
		return b.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, context.Cause(ctx)
	}
}

// Recover implements [driver.Driver].
func (d *Driver) Recover(ctx context.Context, id sandbox.ID, h driver.Handle) error {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	want, err := decodeHandle(h)
	if err != nil {
		return err
	}
	if parsed, ok := sandbox.ParseID(string(id)); !ok || parsed != id {
		return sandbox.Errorf(sandbox.NotFound, "there is no box %q", id)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b := d.host.newBox(id)
	if err := d.boxes.claim(b); err != nil {
		if _, lerr := d.boxes.lookup(id); lerr != nil {
			return lerr // being made, or destroyed
		}
		return nil
	}
	defer close(b.done)
	s, err := readState(b.dir)
	if err != nil || s.Handle != want || !s.Started {
		d.boxes.forget(b)
		return sandbox.Errorf(sandbox.NotFound, "there is no running box %s", id)
	}
	p, err := want.find()
	if err != nil {
		d.boxes.forget(b)
		if errors.Is(err, process.ErrNone) {
			return sandbox.Errorf(sandbox.NotFound, "box %s has ended", id)
		}
		return publicError(err, "recover box %s", id)
	}
	s.Handover = s.Handover || control.HasHandover(b.dir) // an earlier version of Modbox does not keep the field
	if s.Platform == "" && launch.PlatformOf(p.PID) == platform.KVM {
		s.Platform = platform.KVM // nor this one
	}
	b.adopt(p, s)
	if s.Helper != nil {
		b.watchHelper(*s.Helper)
	}
	if s.Frozen {
		b.thawStale(ctx)
	}
	if s.Raised {
		b.lowerMemory()
	}
	return nil
}
