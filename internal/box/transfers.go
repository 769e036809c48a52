package box

import (
	"context"
	"sync"
	"time"
)

// Transfers counts the files that are on their way into a box or out of it. The zero value
// has none. It is safe for concurrent use.
type Transfers struct {
	mu   sync.Mutex
	open int           // guarded by mu
	none chan struct{} // guarded by mu; closed when open is 0 again; nil when nobody waits
}

// Begin counts a transfer until End is called.
func (t *Transfers) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

// End ends a transfer.
func (t *Transfers) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open--; t.open == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
}

// Wait returns when no transfer is under way, after most, or when ctx ends. The caller sees
// to it that none begins meanwhile.
func (t *Transfers) Wait(ctx context.Context, most time.Duration) {
	t.mu.Lock()
	if t.open == 0 {
		t.mu.Unlock()
		return
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	case <-ctx.Done():
	}
}
