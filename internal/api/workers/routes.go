// Package workers has the routes of /v1 about the workers of the server, for administrators.
package workers

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// Workers are the routes of workers.
type Workers struct {
	Fleet *fleet.Driver // nil: sandboxes run on the server's machine
}

// WorkerRef is the path parameter that names a worker. It is exported because huma passes over
// embedded types that are not.
type WorkerRef struct {
	Worker string `path:"worker" maxLength:"80" doc:"The worker: its id or name."`
}

type updateInput struct {
	WorkerRef
	Body wire.UpdateWorker
}

type deleteInput struct {
	WorkerRef
	Force bool `query:"force" doc:"Remove it also if it has sandboxes: they end, or go back to their last checkpoint."`
}

// Register adds the routes.
func (h *Workers) Register(m *route.Mux) {
	const one = "/v1/workers/{worker}"
	tags := []string{"workers"}
	route.JSON(m, huma.Operation{
		OperationID: "list-workers", Method: http.MethodGet, Path: "/v1/workers", Tags: tags,
		Summary: "List workers", Description: "The first that joined first; none if the server runs sandboxes on its own machine. For administrators, as all routes of workers.",
	}, h.list)
	route.JSON(m, huma.Operation{OperationID: "get-worker", Method: http.MethodGet, Path: one, Tags: tags, Summary: "Get a worker"}, h.get)
	route.JSON(m, huma.Operation{
		OperationID: "update-worker", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Drain a worker, or end that", Description: "A worker that is being drained gets no new sandboxes. Its sandboxes stay until they are paused or end.",
	}, h.update)
	route.JSON(m, huma.Operation{
		OperationID: "delete-worker", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a worker", Description: "For good: it is refused from then on. A worker with sandboxes is removed only with force. If it is away, what runs on its machine goes on there until it connects again.",
	}, h.delete)
}

func (h *Workers) list(_ context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Worker]], error) {
	var list []fleet.Worker
	if h.Fleet != nil {
		list = h.Fleet.AllWorkers()
	}
	return route.PagedOf(*in, list, nil, page.Order[fleet.Worker]{
		Name: "workers", Key: func(w fleet.Worker) string { return page.ByTime(w.JoinedAt, w.ID) },
	}, h.show)
}

func (h *Workers) get(_ context.Context, in *WorkerRef) (*route.Body[wire.Worker], error) {
	return h.answer(h.find(in.Worker))
}

func (h *Workers) update(ctx context.Context, in *updateInput) (*route.Body[wire.Worker], error) {
	w, err := h.named(ctx, in.Worker)
	if err == nil && in.Body.Draining != nil {
		audit.FromContext(ctx).Detail("draining", strconv.FormatBool(*in.Body.Draining))
		status := worker.Ready
		if *in.Body.Draining {
			status = worker.Draining
		}
		w, err = h.Fleet.Use(ctx, w.ID, status)
	}
	return h.answer(w, err)
}

func (h *Workers) delete(ctx context.Context, in *deleteInput) (*struct{}, error) {
	w, err := h.named(ctx, in.Worker)
	if err != nil {
		return nil, err
	}
	audit.FromContext(ctx).Detail("force", strconv.FormatBool(in.Force))
	_, err = h.Fleet.Remove(ctx, w.ID, in.Force)
	return nil, err
}

// named is find for a change, whose record names the worker.
func (h *Workers) named(ctx context.Context, ref string) (fleet.Worker, error) {
	w, err := h.find(ref)
	if err == nil {
		audit.FromContext(ctx).Object("worker", w.ID, w.Name)
	}
	return w, err
}

func (h *Workers) find(ref string) (fleet.Worker, error) {
	if h.Fleet == nil {
		return fleet.Worker{}, sandbox.Errorf(sandbox.NotFound, "there is no worker %q: sandboxes of this server run on its own machine", ref)
	}
	return h.Fleet.Find(ref)
}

func (h *Workers) answer(w fleet.Worker, err error) (*route.Body[wire.Worker], error) {
	if err != nil {
		return nil, err
	}
	return route.Reply(h.show(w)), nil
}

func (h *Workers) show(w fleet.Worker) wire.Worker {
	state := "away"
	switch {
	case w.Status == worker.Lost:
		state = "lost"
	case w.Connected:
		state = "connected"
	}
	return wire.Worker{
		ID: w.ID, Name: w.Name, State: state, Draining: w.Status == worker.Draining, Sandboxes: w.Boxes,
		MemoryBytes: w.MemoryBytes, MemoryPromisedBytes: w.PromisedBytes, MemoryPromisedMaxBytes: w.PromisedMaxBytes, Cores: w.Cores,
		ShardRanges: h.Fleet.RangesOf(w), Version: w.Version, Address: w.Address, ConnectedAt: route.Optional(w.ConnectedAt), SeenAt: w.SeenAt, CreatedAt: w.JoinedAt,
	}
}
