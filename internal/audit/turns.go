package audit

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// queriesMax is how many questions are answered at once; each may read much of the log.
const queriesMax = 4

// turns lets one question of each workspace be answered at a time, so that none
// keeps the others waiting, and queriesMax of all. Safe for concurrent use.
type turns struct {
	all chan struct{}

	mu  sync.Mutex
	own map[sandbox.WorkspaceID]*turn // guarded by mu; those with somebody in or before them
}

// turn is that of one workspace.
type turn struct {
	held chan struct{}
	uses int // guarded by turns.mu
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, queriesMax), own: map[sandbox.WorkspaceID]*turn{}}
}

// take waits for the turn of a workspace, "" for the installation; the error is ctx's.
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
	// The workspace's own comes first: who waits for it takes no place of the others.
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
