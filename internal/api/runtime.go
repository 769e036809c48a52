package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/page"
)

func (s *Server) registerRuntimes(a huma.API) {
	route(a, huma.Operation{
		OperationID: "list-runtimes", Method: http.MethodGet, Path: "/v1/runtimes", Tags: []string{"images"},
		Summary: "List runtimes", Description: "The built-in images that sandboxes can be made from, with what is in them and whether they are built, by name.",
	}, s.listRuntimes)
}

func (s *Server) listRuntimes(ctx context.Context, in *PageInput) (*body[wire.Page[wire.Runtime]], error) {
	list, err := s.deps.Catalogue.Runtimes(ctx)
	return pagedOf(*in, list, err, page.Order[spec.Runtime]{
		Name: "runtimes", Key: func(r spec.Runtime) string { return r.Name + " " + string(r.ID) },
	}, runtime)
}

func runtime(r spec.Runtime) wire.Runtime {
	out := wire.Runtime{
		ID: string(r.ID), Name: r.Name, Image: r.Image, Description: r.Description, IconURL: r.IconURL, Color: r.Color,
		URL: r.URL, Tags: append([]string{}, r.Tags...), Readme: r.Readme, Built: r.Digest != "", Digest: r.Digest,
		SizeBytes: r.SizeBytes, CreatedAt: optional(r.CreatedAt), Requirements: wire.Requirements{Network: r.NeedsNetwork},
	}
	need := formatResources(r.Requires)
	if r.Requires.MemoryBytes > 0 {
		out.Requirements.Memory = need.Memory
	}
	if r.Requires.CPUMilli > 0 {
		out.Requirements.CPU = need.CPU
	}
	if r.Requires.DiskBytes > 0 {
		out.Requirements.Disk = need.Disk
	}
	return out
}
