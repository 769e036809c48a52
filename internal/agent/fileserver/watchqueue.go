package fileserver

import (
	"context"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
)

const (
	maxQueuedEvents = 16_384
	maxQueuedBytes  = 4 << 20
)

// eventQueue queues the events that were not sent yet. Pushing never blocks: otherwise inotify's
// own queue would grow, in memory that is not accounted for.
type eventQueue struct {
	max  int
	wake chan struct{} // has a token when there is something to take

	mu     sync.Mutex
	events []agentapi.FileEvent              // guarded by mu
	last   map[string]agentapi.FileEventType // guarded by mu; of each path in events
	bytes  int                               // guarded by mu
	lost   bool                              // guarded by mu; events were dropped
	ended  bool                              // guarded by mu
}

func newEventQueue(max int) *eventQueue {
	return &eventQueue{max: max, wake: make(chan struct{}, 1), last: map[string]agentapi.FileEventType{}}
}

// push adds an event, unless the last event of its path is the same.
func (q *eventQueue) push(e agentapi.FileEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.signal()
	repeats := e.Type == agentapi.FileModified || e.Type == agentapi.FileAttributes
	switch {
	case q.lost, repeats && q.last[e.Path] == e.Type:
	case len(q.events) >= q.max || q.bytes+len(e.Path) > maxQueuedBytes || e.Type == agentapi.WatchOverflow:
		q.lost = true
	default:
		q.events = append(q.events, e)
		q.bytes += len(e.Path)
		q.last[e.Path] = e.Type
	}
}

func (q *eventQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// end closes the queue to further events.
func (q *eventQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.signal()
}

// take waits for events and returns all of them in order, followed by an overflow if some were
// lost. more is false at the end of the queue or of ctx.
func (q *eventQueue) take(ctx context.Context) (events []agentapi.FileEvent, more bool) {
	for {
		q.mu.Lock()
		if len(q.events) > 0 || q.lost || q.ended {
			events, more = q.events, !q.ended
			if q.lost {
				events = append(events, agentapi.FileEvent{Type: agentapi.WatchOverflow})
			}
			q.events, q.bytes, q.lost = nil, 0, false
			clear(q.last)
			q.mu.Unlock()
			return events, more
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, false
		}
	}
}
