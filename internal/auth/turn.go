package auth

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds of those who wait for a password to be hashed, each with a request and its connection.
const (
	waitingOfKey = 16
	waitingInAll = 512
)

// turns lets a few at a time do costly work. Those who wait are served in turn of their
// keys, addresses of clients, so that one that sends many requests delays its own. Safe
// for concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int                        // guarded by mu
	waiting map[string][]chan struct{} // guarded by mu; those of a key in the order they came
	order   []string                   // guarded by mu; the keys that wait, the next one first
	count   int                        // guarded by mu; of all keys
}

func newTurns(n int) *turns { return &turns{free: n, waiting: map[string][]chan struct{}{}} }

// acquire waits for a turn, which release gives back. Errors: QuotaExceeded when too many of
// the key wait, Unavailable when too many wait in all, and the context's.
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
		return sandbox.Errorf(sandbox.QuotaExceeded, "too many sign-ins from this address wait already; try again in a moment")
	case t.count >= waitingInAll:
		t.mu.Unlock()
		return sandbox.Errorf(sandbox.Unavailable, "too many sign-ins wait already; try again in a moment")
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
		t.release() // the turn came at the same moment
	}
	return ctx.Err()
}

// release gives a turn to the next who waits.
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

// leave stops waiting and reports whether the turn had not come.
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
