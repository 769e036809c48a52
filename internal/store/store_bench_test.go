package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

func BenchmarkPause(b *testing.B) {
	s, ws := openStore(b)
	for i := range b.N {
		c := creation(ws, fmt.Sprintf("n%d", i))
		rec, err := s.Sandboxes.CreateSandbox(b.Context(), c, quota.Admission{})
		if err != nil {
			b.Fatal(err)
		}
		id := rec.Sandbox.ID
		if _, err := s.Sandboxes.SetBox(b.Context(), id, "sha256:abc", []byte{0, 1, 255}); err != nil {
			b.Fatal(err)
		}
		now := time.Now().UTC()
		ev := sandbox.Event{Time: now, Type: sandbox.EventRunning}
		for _, step := range []struct {
			from, to sandbox.State
			c        sandbox.Change
		}{
			{sandbox.Provisioning, sandbox.Running, sandbox.Change{StartedAt: &now, LastActivityAt: &now}},
			{sandbox.Running, sandbox.Pausing, sandbox.Change{Saved: new(sandbox.CheckpointID("x"))}},
			{sandbox.Pausing, sandbox.Paused, sandbox.Change{Handle: new([]byte), PausedAt: &now, SavedBytes: new(int64(7))}},
		} {
			if _, err := s.Sandboxes.Transition(b.Context(), id, step.from, step.to, step.c, ev); err != nil {
				b.Fatal(err)
			}
		}
	}
}
