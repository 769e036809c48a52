package agentuity

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// checkpoints has the handlers for checkpoints.
type checkpoints struct {
	*finder
	service *lifecycle.Checkpoints
}

func (h *checkpoints) register(m routes) {
	m.add("POST /sandbox/{id}/checkpoint", byCode, h.create)
	m.add("GET /sandbox/checkpoints/{id}", byCode, h.list)
	m.add("POST /sandbox/{id}/checkpoint/{checkpoint}/restore", byCode, h.restore)
	m.add("DELETE /sandbox/{id}/checkpoint/{checkpoint}", byCode, h.delete)
}

type checkpointInfo struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	CreatedAt string `json:"createdAt"`
	Parent    string `json:"parent"` // name of the checkpoint before it; "" for none
}

func checkpointInfoOf(c *sandbox.Checkpoint) checkpointInfo {
	return checkpointInfo{ID: external(prefixCheckpoint, c.ID), Name: c.Name, CreatedAt: timestamp(c.CreatedAt), Parent: c.ParentName}
}

func (h *checkpoints) create(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Name string `json:"name"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	c, err := h.service.Create(r.Context(), caller(r.Context()), string(sb.ID), in.Name)
	if err != nil {
		return known(err)
	}
	return answer(w, checkpointInfoOf(&c))
}

func (h *checkpoints) list(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.found(r)
	if err != nil {
		return err
	}
	list, err := h.service.List(r.Context(), caller(r.Context()), string(sb.ID))
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

// on calls do with the checkpoint that the request's path names by ID or name.
func (h *checkpoints) on(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, ref, checkpoint string) error) error {
	sb, err := h.found(r)
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

func (h *checkpoints) restore(w http.ResponseWriter, r *http.Request) error {
	return h.on(w, r, func(ctx context.Context, ref, checkpoint string) error {
		_, err := h.service.Restore(ctx, caller(ctx), ref, checkpoint)
		return err
	})
}

func (h *checkpoints) delete(w http.ResponseWriter, r *http.Request) error {
	return h.on(w, r, func(ctx context.Context, ref, checkpoint string) error {
		return h.service.Delete(ctx, caller(ctx), ref, checkpoint)
	})
}
