package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// notesMax is how many events may wait for being written.
const notesMax = 256

// Note queues an event to be recorded soon. It waits, until ctx ends, while the queue is full.
func (s *Service) Note(ctx context.Context, ev sandbox.Event) {
	select {
	case s.notes <- ev:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// noteLoop writes the queued events until the service closes, and then those left.
func (s *Service) noteLoop() {
	for {
		select {
		case ev := <-s.notes:
			s.note(ev)
		case <-s.ctx.Done():
			for {
				select {
				case ev := <-s.notes:
					s.note(ev)
				default:
					return
				}
			}
		}
	}
}

func (s *Service) note(ev sandbox.Event) {
	if err := s.store.AppendEvent(context.WithoutCancel(s.ctx), ev); err != nil {
		s.log.Error("event not recorded", "sandbox", ev.Sandbox, "type", ev.Type, "error", err)
	}
}
