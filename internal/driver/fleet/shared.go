package fleet

import (
	"context"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// class describes the boxes that share a supplied worker: they have the same workspace, limits and files. The worker has space for a number of them.
type class struct {
	workspace sandbox.WorkspaceID
	resources sandbox.Resources
	rootfs    string
}

// boxesFor returns how many boxes a worker gets that is made for a box of a class. A box without a workspace, of the pool, is alone.
func (d supplied) boxesFor(c class) int {
	if c.workspace == "" {
		return 1
	}
	return max(1, d.cfg.PerWorker)
}

// share gives a box a place on a supplied worker of its class, except some, and holds it until release is called. If there is none, it returns the expectation
// of a worker that another call makes and that may have space for the box, for which the caller awaits; else a fresh expectation, whose worker the
// caller makes.
func (d supplied) share(c class, spec driver.Spec, except map[*member]bool) (p *place, release func(), e *expectation, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boxesFor(c) > 1 && d.places[spec.ID] == nil {
		if m := d.fullest(c, spec.ID, except); m != nil {
			p = d.add(spec.ID, m, spec.Resources.MemoryBytes)
			return p, d.holdPlace(spec.ID, p), nil, false
		}
		for _, e := range d.expected {
			if e.class == c && !d.apart(e.home, spec.ID) && e.others < e.boxesMax-1 {
				e.others++
				return nil, nil, e, false
			}
		}
	}
	e = &expectation{id: worker.NewSuppliedID(), connected: make(chan struct{}), over: make(chan struct{}), class: c, home: spec.ID.Shard().Range(), boxesMax: d.boxesFor(c)}
	d.expected[e.id] = e
	return nil, nil, e, true
}

// fullest returns the worker of a class, except some, that has space for a box and has the most boxes, so that others become empty; nil for none.
//
// Preconditions: b.mu is held.
func (b *board) fullest(c class, id sandbox.ID, except map[*member]bool) (best *member) {
	for _, m := range b.members {
		if m.class == c && m.placed < m.boxesMax && m.connected && b.inUse(m) && !except[m] && !b.apart(m.record.Home, id) && (best == nil || m.placed > best.placed) {
			best = m
		}
	}
	return best
}

// await waits for a worker that another call makes. Errors: the reason why there is none, unless the other call was cancelled; the context's.
func (d supplied) await(ctx context.Context, e *expectation) error {
	select {
	case <-e.over:
		return e.err
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.others--
	return context.Cause(ctx)
}
