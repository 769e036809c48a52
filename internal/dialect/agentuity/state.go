package agentuity

import (
	"maps"
	"net/http"
	"strconv"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

func (h *sandboxes) pause(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	if sb, err = h.svc.Pause(r.Context(), caller(r.Context()), string(sb.ID)); err != nil {
		return known(err)
	}
	out := struct {
		Success      bool   `json:"success"`
		SandboxID    string `json:"sandboxId"`
		Status       string `json:"status"`
		CheckpointID string `json:"checkpointId,omitempty"`
		TerminatesAt string `json:"terminatesAt,omitempty"`
	}{Success: true, SandboxID: sandboxID(sb.ID), Status: (&look{Sandbox: sb}).status()}
	if sb.Saved != "" {
		out.CheckpointID = external(prefixCheckpoint, sb.Saved)
	}
	if at, ok := sb.PausedDeadline(); ok {
		out.TerminatesAt = timestamp(at)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (h *sandboxes) resume(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	wait, err := edge.WaitForQuota(r)
	if err != nil {
		return known(err)
	}
	if _, err := h.svc.Resume(r.Context(), caller(r.Context()), string(sb.ID), lifecycle.ResumeRequest{WaitForQuota: wait}); err != nil {
		return known(err)
	}
	return answerDone(w)
}

func (h *sandboxes) updateEnv(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Env map[string]*string `json:"env"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	env, err := h.svc.Environments().Update(r.Context(), caller(r.Context()), string(sb.ID), in.Env)
	if err != nil {
		return known(err)
	}
	return answer(w, struct {
		Env map[string]string `json:"env"`
	}{env})
}

// eventTypes are the dialect's names of events; other events have our names.
var eventTypes = map[sandbox.EventType]string{
	sandbox.EventCreated:    "create",
	sandbox.EventRunning:    "lifecycle:started",
	sandbox.EventDestroying: "destroy",
	sandbox.EventDestroyed:  "lifecycle:terminated",
	sandbox.EventFailed:     "lifecycle:failed",
	sandbox.EventPaused:     "pause",
	sandbox.EventResumed:    "resume",
}

// eventType returns the dialect's name of an event.
func eventType(e *sandbox.Event) string {
	if e.Type == sandbox.EventDestroyed && e.Data["cause"] == string(sandbox.CauseCompleted) {
		return "lifecycle:completed"
	}
	if name, ok := eventTypes[e.Type]; ok {
		return name
	}
	return string(e.Type)
}

type eventInfo struct {
	EventID   string            `json:"eventId"`
	SandboxID string            `json:"sandboxId"`
	Type      string            `json:"type"`
	Event     map[string]string `json:"event"`
	CreatedAt string            `json:"createdAt"`
}

func (h *sandboxes) events(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 50, 1, 100)
	if err != nil {
		return err
	}
	desc, err := descending(r, false)
	if err != nil {
		return err
	}
	sb, err := h.any(r) // events remain after the end
	if err != nil {
		return err
	}
	list, err := h.svc.Events(r.Context(), caller(r.Context()), string(sb.ID), sandbox.EventFilter{Limit: limit, Descending: desc})
	if err != nil {
		return err
	}
	out := struct {
		Events []eventInfo `json:"events"`
	}{make([]eventInfo, len(list.Items))}
	for i, e := range list.Items {
		data := map[string]string{"message": e.Message}
		maps.Copy(data, e.Data)
		out.Events[i] = eventInfo{
			EventID: prefixEvent + strconv.FormatInt(e.Seq, 10), SandboxID: sandboxID(sb.ID), Type: eventType(&list.Items[i]), Event: data, CreatedAt: timestamp(e.Time),
		}
	}
	return answer(w, out)
}
