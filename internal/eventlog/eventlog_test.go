package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/sandbox"
)

// recorder is a store that fails for events with the message "bad".
type recorder []string

func (r *recorder) AppendEvent(_ context.Context, ev sandbox.Event) error {
	if ev.Message == "bad" {
		return errors.New("no")
	}
	*r = append(*r, ev.Message)
	return nil
}

func TestQueue(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var got recorder
	q := New(ctx, &got, slog.New(slog.DiscardHandler))
	for range queueMax - 3 {
		q.TryAdd(sandbox.Event{Message: "bad"})
	}
	q.Add(ctx, sandbox.Event{Message: "one"})
	q.TryAdd(sandbox.Event{Message: "two"})
	q.Add(ctx, sandbox.Event{Message: "three"})
	q.TryAdd(sandbox.Event{Message: "beyond the limit"})
	gone, stop := context.WithCancel(ctx)
	stop()
	q.Add(gone, sandbox.Event{Message: "of a caller that is gone"})
	cancel()
	q.Run() // records the rest of the queue
	if diff := cmp.Diff(recorder{"one", "two", "three"}, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}
