package audit

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// queriesMax is how many queries run at once; each may read much of the log.
const queriesMax = 4

// turns permits a single query for each workspace at a time, so that no workspace delays the
// others, and queriesMax queries in total. Safe for concurrent use.
type turns struct {
	all chan struct{}

	mu  sync.Mutex
	own map[sandbox.WorkspaceID]*turn // guarded by mu; workspaces with a query that runs or waits
}

// turn is the semaphore of a workspace.
type turn struct {
	held chan struct{}
	uses int // guarded by turns.mu
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, queriesMax), own: map[sandbox.WorkspaceID]*turn{}}
}

// take waits for the turn of a workspace, "" for the installation. Errors: ctx's.
func (t *turns) take(ctx context.Context, ws sandbox.WorkspaceID) (release func(), err error) {
	t.mu.Lock()
	own := t.own[ws]
	if own == nil {
		own = &turn{held: make(chan struct{}, 1)}
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
	// The workspace's own turn comes first: waiting for it must not occupy a place of the others.
	for _, held := range []chan struct{}{own.held, t.all} {
		select {
		case held <- struct{}{}:
			before := leave
			leave = func() {
				<-held
				before()
			}
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
