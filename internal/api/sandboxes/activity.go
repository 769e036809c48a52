package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/events"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// Activity are the routes of the events and the use of sandboxes.
type Activity struct {
	Service *lifecycle.Service
	Guest   *guest.Calls
}

type eventsInput struct {
	route.SandboxRef
	AfterSeq int64  `query:"after_seq" minimum:"0" doc:"Only events with a greater seq, which happened after that event."`
	Order    string `query:"order" enum:"asc,desc" default:"asc" doc:"asc: oldest first; desc: newest first."`
	route.PageInput
}

// Register adds the routes.
func (h *Activity) Register(m *route.Mux) {
	tags := []string{"sandboxes"}
	route.JSON(m, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/events", Tags: tags,
		Summary: "List what happened to a sandbox", Description: "Events stay when the sandbox has ended.",
	}, h.listEvents)
	route.JSON(m, huma.Operation{
		OperationID: "get-stats", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/stats", Tags: tags,
		Summary: "Measure a running sandbox", Description: "Use of memory, CPU, disk and processes now.",
	}, h.getStats)
	route.JSON(m, huma.Operation{
		OperationID: "get-usage", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/usage", Tags: tags,
		Summary: "Total use of a sandbox", Description: "Since it was made, over pauses and restarts of the server. It remains available after the end of the sandbox.",
	}, h.getUsage)
}

func (h *Activity) listEvents(ctx context.Context, in *eventsInput) (*route.Body[wire.Page[wire.Event]], error) {
	list, err := h.Service.Events(ctx, route.Caller(ctx), in.Ref, sandbox.EventFilter{
		AfterSeq: in.AfterSeq, Descending: in.Order == "desc", Limit: in.Limit, Cursor: in.Cursor,
	})
	return route.Paged(list, err, events.Show)
}

func (h *Activity) getStats(ctx context.Context, in *route.SandboxRef) (*route.Body[wire.Stats], error) {
	st, err := h.Guest.Stats(ctx, route.Caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.Stats(st)), nil
}

func (h *Activity) getUsage(ctx context.Context, in *route.SandboxRef) (*route.Body[wire.Usage], error) {
	u, err := h.Service.Usage(ctx, route.Caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.Usage{
		At: route.Optional(u.At), RunningSeconds: u.Running.Seconds(), CPUSeconds: u.CPU.Seconds(), MemoryByteSeconds: u.MemoryByteSeconds,
		SentBytes: u.SentBytes, ReceivedBytes: u.ReceivedBytes,
	}), nil
}
