package agentuity

import (
	"context"
	"maps"
	"net/http"
	"strconv"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

func (d *Dialect) pause(w http.ResponseWriter, r *http.Request) error {
	sb, err := d.usable(r)
	if err != nil {
		return err
	}
	if sb, err = d.svc.Pause(r.Context(), caller(r.Context()), string(sb.ID)); err != nil {
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

func (d *Dialect) resume(w http.ResponseWriter, r *http.Request) error {
	sb, err := d.usable(r)
	if err != nil {
		return err
	}
	wait, err := edge.WaitForQuota(r)
	if err != nil {
		return known(err)
	}
	if _, err := d.svc.Resume(r.Context(), caller(r.Context()), string(sb.ID), lifecycle.ResumeRequest{WaitForQuota: wait}); err != nil {
		return known(err)
	}
	return answerDone(w)
}

func (d *Dialect) updateEnv(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Env map[string]*string `json:"env"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := d.usable(r)
	if err != nil {
		return err
	}
	env, err := d.svc.Environments().Update(r.Context(), caller(r.Context()), string(sb.ID), in.Env)
	if err != nil {
		return known(err)
	}
	return answer(w, struct {
		Env map[string]string `json:"env"`
	}{env})
}

type checkpointInfo struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	CreatedAt string `json:"createdAt"`
	// Parent is always empty: each of our checkpoints is complete by itself.
	Parent string `json:"parent"`
}

func checkpointInfoOf(c *sandbox.Checkpoint) checkpointInfo {
	return checkpointInfo{ID: external(prefixCheckpoint, c.ID), Name: c.Name, CreatedAt: timestamp(c.CreatedAt)}
}

func (d *Dialect) createCheckpoint(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Name string `json:"name"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := d.usable(r)
	if err != nil {
		return err
	}
	c, err := d.svc.Checkpoints().Create(r.Context(), caller(r.Context()), string(sb.ID), in.Name)
	if err != nil {
		return known(err)
	}
	return answer(w, checkpointInfoOf(&c))
}

func (d *Dialect) checkpoints(w http.ResponseWriter, r *http.Request) error {
	sb, err := d.found(r)
	if err != nil {
		return err
	}
	list, err := d.svc.Checkpoints().List(r.Context(), caller(r.Context()), string(sb.ID))
	if err != nil {
		return err
	}
	out := struct {
		Checkpoints []checkpointInfo `json:"checkpoints"`
	}{make([]checkpointInfo, len(list))}
	for i := range list {
		out.Checkpoints[i] = checkpointInfoOf(&list[i])
	}
	return answer(w, out)
}

// onCheckpoint calls do with the checkpoint that the request's path names by ID or name.
func (d *Dialect) onCheckpoint(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, ref, checkpoint string) error) error {
	sb, err := d.found(r)
	if err != nil {
		return err
	}
	name := r.PathValue("checkpoint")
	if id, ok := internal[sandbox.CheckpointID](prefixCheckpoint, name); ok {
		name = string(id)
	}
	if err := do(r.Context(), string(sb.ID), name); err != nil {
		return known(err)
	}
	return answerDone(w)
}

func (d *Dialect) restoreCheckpoint(w http.ResponseWriter, r *http.Request) error {
	return d.onCheckpoint(w, r, func(ctx context.Context, ref, checkpoint string) error {
		_, err := d.svc.Checkpoints().Restore(ctx, caller(ctx), ref, checkpoint)
		return err
	})
}

func (d *Dialect) deleteCheckpoint(w http.ResponseWriter, r *http.Request) error {
	return d.onCheckpoint(w, r, func(ctx context.Context, ref, checkpoint string) error {
		return d.svc.Checkpoints().Delete(ctx, caller(ctx), ref, checkpoint)
	})
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

type eventInfo struct {
	EventID   string            `json:"eventId"`
	SandboxID string            `json:"sandboxId"`
	Type      string            `json:"type"`
	Event     map[string]string `json:"event"`
	CreatedAt string            `json:"createdAt"`
}

func (d *Dialect) events(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 50, 1, 100)
	if err != nil {
		return err
	}
	desc, err := descending(r, false)
	if err != nil {
		return err
	}
	sb, err := d.any(r) // events remain after the end
	if err != nil {
		return err
	}
	list, err := d.svc.Events(r.Context(), caller(r.Context()), string(sb.ID), sandbox.EventFilter{Limit: limit, Descending: desc})
	if err != nil {
		return err
	}
	out := struct {
		Events []eventInfo `json:"events"`
	}{make([]eventInfo, len(list.Items))}
	for i, e := range list.Items {
		kind, ok := eventTypes[e.Type]
		if !ok {
			kind = string(e.Type)
		}
		data := map[string]string{"message": e.Message}
		maps.Copy(data, e.Data)
		out.Events[i] = eventInfo{
			EventID: prefixEvent + strconv.FormatInt(e.Seq, 10), SandboxID: sandboxID(sb.ID), Type: kind, Event: data, CreatedAt: timestamp(e.Time),
		}
	}
	return answer(w, out)
}
