package gvisor

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// table has the boxes that the driver knows, from the moment their IDs are claimed.
type table struct {
	mu    sync.Mutex
	boxes map[sandbox.ID]*box // guarded by mu
}

// claim enters b under its ID, unless that is taken.
func (t *table) claim(b *box) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.boxes[b.id] != nil {
		return sandbox.Errorf(sandbox.Exists, "box %s already exists", b.id)
	}
	t.boxes[b.id] = b
	return nil
}

// forget removes b.
func (t *table) forget(b *box) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.boxes[b.id] == b {
		delete(t.boxes, b.id)
	}
}

// get returns the box that has claimed the ID, or nil.
func (t *table) get(id sandbox.ID) *box {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.boxes[id]
}

// ids returns the claimed IDs.
func (t *table) ids() []sandbox.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.boxes))
}

// empty removes all boxes and returns them.
func (t *table) empty() []*box {
	t.mu.Lock()
	defer t.mu.Unlock()
	boxes := slices.Collect(maps.Values(t.boxes))
	t.boxes = map[sandbox.ID]*box{}
	return boxes
}

// lookup returns a box that was made or recovered completely.
func (t *table) lookup(id sandbox.ID) (*box, error) {
	b := t.get(id)
	if b == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s", id)
	}
	select {
	case <-b.ready:
		return b, nil
	default:
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s yet", id)
	}
}

// lockStarted returns a running box, with its lock acquired.
func (t *table) lockStarted(ctx context.Context, id sandbox.ID) (*box, error) {
	b, err := t.lookup(id)
	if err != nil {
		return nil, err
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	switch {
	case !b.started():
		err = sandbox.Errorf(sandbox.Conflict, "box %s is not started", id)
	case b.hasEnded():
		err = b.endedError()
	default:
		return b, nil
	}
	b.unlock()
	return nil, err
}
