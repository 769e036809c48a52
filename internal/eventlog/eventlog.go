// Package eventlog records events of sandboxes in the background, for callers that must not wait
// for the store.
package eventlog

import (
	"context"
	"log/slog"

	"github.com/modbox/modbox/internal/sandbox"
)

// queueMax is the number of events that may wait to be recorded.
const queueMax = 256

// Store records events.
type Store interface {
	// AppendEvent appends an event of a sandbox.
	AppendEvent(ctx context.Context, ev sandbox.Event) error
}

// Queue has the events that are to be recorded. It is safe for concurrent use.
type Queue struct {
	ctx    context.Context // of the service
	store  Store
	log    *slog.Logger
	events chan sandbox.Event
}

// New returns a queue that takes events until ctx ends.
func New(ctx context.Context, store Store, log *slog.Logger) *Queue {
	return &Queue{ctx: ctx, store: store, log: log, events: make(chan sandbox.Event, queueMax)}
}

// Add queues an event. It waits, until ctx ends, while the queue is full.
func (q *Queue) Add(ctx context.Context, ev sandbox.Event) {
	select {
	case q.events <- ev:
	case <-ctx.Done():
	case <-q.ctx.Done():
	}
}

// TryAdd queues an event unless the queue is full.
func (q *Queue) TryAdd(ev sandbox.Event) {
	select {
	case q.events <- ev:
	default:
	}
}

// Run records the queued events until the service closes, and then the events that are still in the
// queue.
func (q *Queue) Run() {
	for {
		select {
		case ev := <-q.events:
			q.record(ev)
		case <-q.ctx.Done():
			for {
				select {
				case ev := <-q.events:
					q.record(ev)
				default:
					return
				}
			}
		}
	}
}

func (q *Queue) record(ev sandbox.Event) {
	if err := q.store.AppendEvent(context.WithoutCancel(q.ctx), ev); err != nil {
		q.log.Error("event not recorded", "sandbox", ev.Sandbox, "type", ev.Type, "error", err)
	}
}
