package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/wire"
	"github.com/modbox/modbox/internal/sandbox"
)

type eventsInput struct {
	SandboxRef
	After int64  `query:"after" minimum:"0" doc:"Only events with a seq beyond this (asc) or before it (desc); 0 for all."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Events at most."`
	Order string `query:"order" enum:"asc,desc" default:"asc" doc:"asc: oldest first; desc: newest first."`
}

func (s *Server) registerObserve(a huma.API) {
	tags := []string{"sandboxes"}
	route(a, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/sandboxes/{ref}/events", Tags: tags,
		Summary: "List what happened to a sandbox", Description: "Events stay when the sandbox has ended.",
	}, s.listEvents)
	route(a, huma.Operation{
		OperationID: "get-stats", Method: http.MethodGet, Path: "/v1/sandboxes/{ref}/stats", Tags: tags,
		Summary: "Measure a running sandbox", Description: "Use of memory, CPU, disk and processes now.",
	}, s.getStats)
	route(a, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/v1/images", Tags: []string{"images"},
		Summary: "List images", Description: "What sandboxes can be made from.",
	}, s.listImages)
}

func (s *Server) listEvents(ctx context.Context, in *eventsInput) (*body[wire.EventList], error) {
	events, err := s.svc.Events(ctx, caller(ctx), in.Ref, in.After, in.Limit, in.Order == "desc")
	if err != nil {
		return nil, err
	}
	out := wire.EventList{Items: make([]wire.Event, 0, len(events))}
	for _, e := range events {
		out.Items = append(out.Items, wire.Event{
			Seq: e.Seq, SandboxID: string(e.Sandbox), Time: e.Time, Type: string(e.Type), Message: e.Message, Data: e.Data,
		})
	}
	return reply(out), nil
}

func (s *Server) getStats(ctx context.Context, in *SandboxRef) (*body[wire.Stats], error) {
	st, err := s.guest.Stats(ctx, caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return reply(wire.Stats(st)), nil
}

func (s *Server) listImages(ctx context.Context, _ *struct{}) (*body[wire.ImageList], error) {
	images, err := s.svc.Images(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	out := wire.ImageList{Items: make([]wire.Image, 0, len(images))}
	for _, i := range images {
		out.Items = append(out.Items, shownImage(i))
	}
	return reply(out), nil
}

func shownImage(i sandbox.Image) wire.Image {
	return wire.Image{
		ID: string(i.ID), Name: i.Name, Tag: i.Tag, Ref: i.Ref(), Digest: i.Digest, Description: i.Description,
		Builtin: i.Builtin, IsDefault: i.IsDefault, SizeBytes: i.SizeBytes, Memory: formatBytes(i.MemoryBytes),
		ReadinessPort: int(i.ReadinessPort), TTLSeconds: int64(i.TTL / time.Second), CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
	}
}
