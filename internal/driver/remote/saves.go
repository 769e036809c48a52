package remote

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// saveQueue has the places of saves.
type saveQueue struct {
	driver *Driver
	places *fairsem.Semaphore

	mu       sync.Mutex
	reserved map[sandbox.ID]int // guarded by mu; how many places each box has
}

func newSaveQueue(d *Driver) *saveQueue {
	return &saveQueue{driver: d, places: fairsem.New(maxSavesAtOnce), reserved: map[sandbox.ID]int{}}
}

// ReserveSave implements [driver.SaveReserver].
func (q *saveQueue) ReserveSave(ctx context.Context, id sandbox.ID, w sandbox.WorkspaceID) (release func(), err error) {
	ctx, leave := q.driver.enter(ctx)
	defer leave()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	free, err := q.acquire(ctx, w)
	if err != nil {
		return nil, err
	}
	q.add(id, 1)
	return sync.OnceFunc(func() { q.add(id, -1); free() }), nil
}

// forSave returns when a box that is to be saved has a place, which it may have already.
func (q *saveQueue) forSave(ctx context.Context, id sandbox.ID, w sandbox.WorkspaceID) (release func(), err error) {
	if q.add(id, 0) > 0 {
		return func() {}, nil
	}
	return q.acquire(ctx, w)
}

func (q *saveQueue) acquire(ctx context.Context, w sandbox.WorkspaceID) (release func(), err error) {
	release, err = q.places.Acquire(ctx, w, nil)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return release, err
}

// add adds n to the places of a box, and returns how many it has.
func (q *saveQueue) add(id sandbox.ID, n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n += q.reserved[id]
	if q.reserved[id] = n; n == 0 {
		delete(q.reserved, id)
	}
	return n
}
