package lifecycle_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/eventrows"
)

// TestEventsComeAfterTheirChanges checks that a client which gets an event and looks at the sandbox sees the
// change, also when the change is in the database for a while before the service has it in memory.
func TestEventsComeAfterTheirChanges(t *testing.T) {
	s := newEnv(t).start()
	s.store.faults.on(nil, func(int, string) error {
		time.Sleep(30 * time.Millisecond)
		return nil
	})
	hub := eventstream.New(eventstream.Config{}, eventrows.New(s.store.store.DB), s.Service, slog.New(slog.DiscardHandler))
	hub.Start()
	t.Cleanup(hub.Close)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	stream, err := hub.Follow(ctx, s.caller, sandbox.EventFilter{}, eventstream.From{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	// seen makes a change, and returns the sandbox as it is when the event of the change comes.
	seen := func(typ sandbox.EventType, change func() error) sandbox.Sandbox {
		t.Helper()
		changed := make(chan error, 1)
		go func() { changed <- change() }()
		for {
			events, err := stream.Next(ctx, nil)
			if err != nil {
				t.Fatalf("no event %s: %v", typ, err)
			}
			for _, ev := range events {
				if ev.Type != typ {
					continue
				}
				sb := s.get(string(ev.Sandbox))
				if err := <-changed; err != nil {
					t.Fatalf("change with the event %s: %v", typ, err)
				}
				return sb
			}
		}
	}
	var id string
	interval := time.Hour
	for _, step := range []struct {
		event    sandbox.EventType
		change   func() error
		state    sandbox.State
		interval time.Duration
	}{
		{sandbox.EventRunning, func() error {
			sb, _, err := s.Create(ctx, s.caller, lifecycle.CreateRequest{Name: "a"})
			id = string(sb.ID)
			return err
		}, sandbox.Running, 0},
		{sandbox.EventCheckpointInterval, func() error {
			_, err := s.Update(ctx, s.caller, id, lifecycle.UpdateRequest{CheckpointInterval: &interval})
			return err
		}, sandbox.Running, interval},
		{sandbox.EventPaused, func() error {
			_, err := s.Pause(ctx, s.caller, id)
			return err
		}, sandbox.Paused, interval},
		{sandbox.EventResumed, func() error {
			_, err := s.Resume(ctx, s.caller, id, lifecycle.ResumeRequest{})
			return err
		}, sandbox.Running, interval},
		{sandbox.EventDestroyed, func() error {
			_, err := s.Destroy(ctx, s.caller, id, sandbox.CauseDestroyed)
			return err
		}, sandbox.Destroyed, interval},
	} {
		if sb := seen(step.event, step.change); sb.State != step.state || sb.CheckpointInterval != step.interval {
			t.Errorf("when the event %s comes, the sandbox is %s with a checkpoint every %s, want %s and %s", step.event, sb.State, sb.CheckpointInterval, step.state, step.interval)
		}
	}
}
