package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

type eventsInput struct {
	SandboxRef
	AfterSeq int64  `query:"after_seq" minimum:"0" doc:"Only events with a greater seq, which happened after that event."`
	Order    string `query:"order" enum:"asc,desc" default:"asc" doc:"asc: oldest first; desc: newest first."`
	PageInput
}

func (s *Server) registerObserve(a huma.API) {
	tags := []string{"sandboxes"}
	route(a, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/events", Tags: tags,
		Summary: "List what happened to a sandbox", Description: "Events stay when the sandbox has ended.",
	}, s.listEvents)
	route(a, huma.Operation{
		OperationID: "get-stats", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/stats", Tags: tags,
		Summary: "Measure a running sandbox", Description: "Use of memory, CPU, disk and processes now.",
	}, s.getStats)
	route(a, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/v1/images", Tags: []string{"images"},
		Summary: "List images", Description: "The images that sandboxes can be made from: the built-in images, the default one first, and then the others, by name.",
	}, s.listImages)
}

func (s *Server) listEvents(ctx context.Context, in *eventsInput) (*body[wire.Page[wire.Event]], error) {
	events, err := s.svc.Events(ctx, caller(ctx), in.Ref, sandbox.EventFilter{
		AfterSeq: in.AfterSeq, Descending: in.Order == "desc", Limit: in.Limit, Cursor: in.Cursor,
	})
	return paged(events, err, func(e sandbox.Event) wire.Event {
		return wire.Event{Seq: e.Seq, SandboxID: string(e.Sandbox), Time: e.Time, Type: string(e.Type), Message: e.Message, Data: e.Data}
	})
}

func (s *Server) getStats(ctx context.Context, in *SandboxRef) (*body[wire.Stats], error) {
	st, err := s.guest.Stats(ctx, caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return reply(wire.Stats(st)), nil
}

func (s *Server) listImages(ctx context.Context, in *PageInput) (*body[wire.Page[wire.Image]], error) {
	images, err := s.deps.Catalogue.Images(ctx, caller(ctx).Workspace)
	return pagedOf(*in, images, err, page.Order[spec.Image]{Name: "images", Key: func(i spec.Image) string {
		return rank(!i.Builtin) + rank(!i.IsDefault) + i.Ref() + " " + string(i.ID)
	}}, shownImage)
}

// rank is the beginning of a sort key: items for which later holds come last.
func rank(later bool) string {
	if later {
		return "1"
	}
	return "0"
}

func shownImage(i spec.Image) wire.Image {
	return wire.Image{
		ID: string(i.ID), Name: i.Name, Tag: i.Tag, Ref: i.Ref(), Digest: i.Digest, Description: i.Description,
		Builtin: i.Builtin, IsDefault: i.IsDefault, SizeBytes: i.SizeBytes, Memory: formatBytes(i.MemoryBytes),
		ReadinessPort: int(i.ReadinessPort), TTLSeconds: int64(i.TTL / time.Second), CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
	}
}
