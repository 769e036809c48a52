package audit

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// queriesMax bounds the concurrent queries; each may read much of the log.
const queriesMax = 4

// querySlots permit a single query for each workspace at a time, so that no workspace delays the
// others, and queriesMax queries in total. Safe for concurrent use.
type querySlots struct {
	all chan struct{}

	mu  sync.Mutex
	own map[sandbox.WorkspaceID]*workspaceSlot // guarded by mu; workspaces with a query that runs or waits
}

// workspaceSlot is the semaphore of a workspace.
type workspaceSlot struct {
	slot chan struct{}
	uses int // guarded by querySlots.mu
}

func newQuerySlots() *querySlots {
	return &querySlots{all: make(chan struct{}, queriesMax), own: map[sandbox.WorkspaceID]*workspaceSlot{}}
}

// acquire waits for the slot of a workspace, "" for the installation. Errors: ctx's.
func (t *querySlots) acquire(ctx context.Context, ws sandbox.WorkspaceID) (release func(), err error) {
	t.mu.Lock()
	own := t.own[ws]
	if own == nil {
		own = &workspaceSlot{slot: make(chan struct{}, 1)}
		t.own[ws] = own
	}
	own.uses++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.uses--; own.uses == 0 {
			delete(t.own, ws)
		}
	}
	// The workspace's own slot comes first: a query that waits for it must not occupy a shared slot.
	for _, slot := range []chan struct{}{own.slot, t.all} {
		select {
		case slot <- struct{}{}:
			before := leave
			leave = func() {
				<-slot
				before()
			}
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
