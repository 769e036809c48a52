package lifecycle

import (
	"context"
	"sync"
)

// news tells many that something has changed.
type news struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu; closed at the next change; nil when nobody waits
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Changed returns a channel that is closed when something happens to the sandbox
// or to one of its executions after the call. Who wants to miss nothing calls it
// before looking. Of a sandbox that has ended it is nil: nothing happens to it
// any more. Errors: NotFound.
func (s *Service) Changed(ctx context.Context, c Caller, ref string) (<-chan struct{}, error) {
	b, _, err := s.find(ctx, c, ref)
	if err != nil || b == nil {
		return nil, err
	}
	return b.news.wait(), nil
}
