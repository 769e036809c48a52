// Package broadcast wakes all goroutines that wait for a change.
package broadcast

import "sync"

// Broadcast tells any number of goroutines that something has changed. The zero value is
// ready to use. Safe for concurrent use.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu; closed by the next Send; nil when nobody waits
}

// Send closes the channel that earlier calls of Wait returned.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Wait returns a channel that the next Send closes. A caller that must miss no change
// calls it before it looks.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}
