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

// semaphore serves keys in turn. Keys are client addresses, so that an address that
// sends many requests delays only its own. Safe for concurrent use.
type semaphore struct {
	mu      sync.Mutex
	free    int                        // guarded by mu
	waiting map[string][]chan struct{} // guarded by mu; the waiters of a key, in order of arrival
	order   []string                   // guarded by mu; keys with waiters, the next one to serve first
	count   int                        // guarded by mu; number of waiters of all keys
}

func newSemaphore(n int) *semaphore {
	return &semaphore{free: n, waiting: map[string][]chan struct{}{}}
}

// acquire waits for a place, which the caller returns by release. Errors: QuotaExceeded when the
// key has too many waiters, Unavailable when all keys together have too many, and the context's.
func (s *semaphore) acquire(ctx context.Context, key string) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	mine := s.waiting[key]
	switch {
	case len(mine) >= waitingOfKey:
		s.mu.Unlock()
		return sandbox.Errorf(sandbox.QuotaExceeded, "too many sign-ins from this address are waiting; try again in a moment")
	case s.count >= waitingInAll:
		s.mu.Unlock()
		return sandbox.Errorf(sandbox.Unavailable, "too many sign-ins are waiting; try again in a moment")
	case len(mine) == 0:
		s.order = append(s.order, key)
	}
	turn := make(chan struct{})
	s.waiting[key] = append(mine, turn)
	s.count++
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !s.leave(key, turn) {
		s.release() // the place came at the same moment
	}
	return ctx.Err()
}

// release gives a place to the next waiter.
func (s *semaphore) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		s.free++
		return
	}
	key := s.order[0]
	s.order = s.order[1:]
	mine := s.waiting[key]
	close(mine[0])
	s.count--
	if len(mine) == 1 {
		delete(s.waiting, key)
		return
	}
	s.waiting[key] = mine[1:]
	s.order = append(s.order, key)
}

// leave stops waiting and reports whether it left the queue before its place came.
func (s *semaphore) leave(key string, turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.waiting[key]
	for i := range mine {
		if mine[i] != turn {
			continue
		}
		s.count--
		if len(mine) > 1 {
			s.waiting[key] = append(mine[:i:i], mine[i+1:]...)
			return true
		}
		delete(s.waiting, key)
		for j := range s.order {
			if s.order[j] == key {
				s.order = append(s.order[:j:j], s.order[j+1:]...)
				break
			}
		}
		return true
	}
	return false
}
