package gvisor

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// Destroy implements [driver.Driver].
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	if parsed, ok := sandbox.ParseID(string(id)); !ok || parsed != id {
		return nil // no box has such an ID; and it must not become part of a path
	}
	for {
		b := d.host.newBox(id)
		if d.boxes.claim(b) == nil {
			// Unknown box: remains of an earlier driver, or nothing at all.
			err := d.host.clear(ctx, id, true)
			d.boxes.forget(b)
			close(b.done)
			return destroyError(ctx, id, err)
		}
		if b = d.boxes.get(id); b == nil {
			continue
		}
		b.abort(sandbox.Errorf(sandbox.Unavailable, "the sandbox was destroyed while it was made"))
		select {
		case <-b.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-b.ready:
			return destroyError(ctx, id, d.destroy(ctx, b))
		default: // its making failed and left nothing, or another Destroy cleared remains
		}
	}
}

// destroy ends a completely made box.
func (d *Driver) destroy(ctx context.Context, b *box) error {
	b.mu.Lock()
	b.destroyed = true
	b.mu.Unlock()
	// Before waiting for the lock: a Start in progress ends with the process.
	if err := b.proc.Kill(); err != nil && !b.hasEnded() {
		return err
	}
	select {
	case <-b.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if d.boxes.get(b.id) != b {
		return nil // by another Destroy; the ID may belong to another box now
	}
	if err := d.host.clear(ctx, b.id, false); err != nil {
		return err
	}
	d.boxes.forget(b)
	return nil
}

func destroyError(ctx context.Context, id sandbox.ID, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return sandbox.Wrap(sandbox.Internal, err, "box %s could not be removed completely", id)
	}
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]sandbox.ID, error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return d.host.found(d.boxes.ids())
}
