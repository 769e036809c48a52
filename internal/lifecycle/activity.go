package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// activityInterval is how far the recorded last activity may lag behind.
const activityInterval = 15 * time.Second

// working asks the agent whether a command runs in the sandbox. The image's own
// command does not count: it runs as long as the sandbox.
func (s *Service) working(b *entry) bool {
	ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
	defer cancel()
	list, err := b.Agent.Processes(ctx)
	if err != nil {
		s.log.Warn("cannot ask an idle sandbox whether it works", "sandbox", b.ID, "error", err)
		return false
	}
	for _, p := range list {
		if p.Exit == nil && p.ID != agentapi.MainID {
			return true
		}
	}
	return false
}

// saveActivity records the last activity of all sandboxes where that is behind
// by at least lag.
func (s *Service) saveActivity(ctx context.Context, lag time.Duration) {
	at := map[sandbox.ID]time.Time{}
	for _, b := range s.boxes.all() {
		if last := b.Activity.Unrecorded(lag); !last.IsZero() {
			at[b.ID] = last
		}
	}
	if err := s.store.NoteActivity(ctx, at); err != nil {
		s.log.Error("activity not recorded, trying again soon", "error", err)
		return
	}
	for id, last := range at {
		if b := s.boxes.byID(id); b != nil {
			b.Activity.Recorded(last)
		}
	}
}

// recallActivity takes over the activity that the previous server recorded. Unrecorded activity is
// estimated in favour of the sandbox: it should rather be idle for too long than end too early.
func (b *entry) recallActivity(now time.Time) {
	sb := b.View().Sandbox
	last := sb.LastActivityAt
	if last.IsZero() {
		last = sb.UpdatedAt
	}
	if last = last.Add(activityInterval); last.After(now) {
		last = now
	}
	b.Activity.At(last)
}
