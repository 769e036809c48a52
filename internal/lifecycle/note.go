package lifecycle

import (
	"context"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// notesMax is how many events may wait for being written.
const notesMax = 256

// execEnded appends the event that a command ended. It only queues the event,
// and waits, until ctx ends, when very many are queued. Of the command only the
// program's name is kept: arguments and environment may hold secrets.
func (s *Service) execEnded(ctx context.Context, id sandbox.ID, program string, exit agentapi.Exit) {
	data := map[string]string{
		"program":     sandbox.OneLine(program),
		"exit_code":   strconv.Itoa(exit.Code),
		"duration_ms": strconv.FormatInt(exit.Duration.Milliseconds(), 10),
	}
	message := "a command ended"
	if exit.TimedOut {
		message = "a command ran out of time"
		data["timed_out"] = "true"
	}
	ev := sandbox.Event{Sandbox: id, Time: time.Now().UTC(), Type: sandbox.EventExec, Message: message, Data: data}
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
