package auth

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds of the requests that wait for a password to be hashed; each occupies a connection.
const (
	waitingOfKey = 16
	waitingInAll = 512
)

// turns is a semaphore that serves keys in turn. Keys are client addresses, so that an address that
// sends many requests delays only its own. Safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int                        // guarded by mu
	waiting map[string][]chan struct{} // guarded by mu; the waiters of a key, in order of arrival
	order   []string                   // guarded by mu; keys with waiters, the next one to serve first
	count   int                        // guarded by mu; number of waiters of all keys
}

func newTurns(n int) *turns { return &turns{free: n, waiting: map[string][]chan struct{}{}} }

// acquire waits for a place, which the caller returns by release. Errors: QuotaExceeded when the
// key has too many waiters, Unavailable when all keys together have too many, and the context's.
func (t *turns) acquire(ctx context.Context, key string) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	mine := t.waiting[key]
	switch {
	case len(mine) >= waitingOfKey:
		t.mu.Unlock()
		return sandbox.Errorf(sandbox.QuotaExceeded, "too many sign-ins from this address are waiting; try again in a moment")
	case t.count >= waitingInAll:
		t.mu.Unlock()
		return sandbox.Errorf(sandbox.Unavailable, "too many sign-ins are waiting; try again in a moment")
	case len(mine) == 0:
		t.order = append(t.order, key)
	}
	turn := make(chan struct{})
	t.waiting[key] = append(mine, turn)
	t.count++
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.leave(key, turn) {
		t.release() // the place came at the same moment
	}
	return ctx.Err()
}

// release gives a place to the next waiter.
func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	key := t.order[0]
	t.order = t.order[1:]
	mine := t.waiting[key]
	close(mine[0])
	t.count--
	if len(mine) == 1 {
		delete(t.waiting, key)
		return
	}
	t.waiting[key] = mine[1:]
	t.order = append(t.order, key)
}

// leave stops waiting and reports whether it left the queue before its place came.
func (t *turns) leave(key string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.waiting[key]
	for i := range mine {
		if mine[i] != turn {
			continue
		}
		t.count--
		if len(mine) > 1 {
			t.waiting[key] = append(mine[:i:i], mine[i+1:]...)
			return true
		}
		delete(t.waiting, key)
		for j := range t.order {
			if t.order[j] == key {
				t.order = append(t.order[:j:j], t.order[j+1:]...)
				break
			}
		}
		return true
	}
	return false
}
