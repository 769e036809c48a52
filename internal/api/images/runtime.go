package images

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/page"
)

// Runtimes are the routes of the built-in images.
type Runtimes struct{ Catalogue *catalogue.Catalogue }

// Register adds the routes.
func (h *Runtimes) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "list-runtimes", Method: http.MethodGet, Path: "/v1/runtimes", Tags: []string{"images"},
		Summary: "List runtimes", Description: "The built-in images that sandboxes can be made from, with what is in them and whether they are built, by name.",
	}, h.listRuntimes)
}

func (h *Runtimes) listRuntimes(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Runtime]], error) {
	list, err := h.Catalogue.Runtimes(ctx)
	return route.PagedOf(*in, list, err, page.Order[spec.Runtime]{
		Name: "runtimes", Key: func(r spec.Runtime) string { return r.Name + " " + string(r.ID) },
	}, runtime)
}

func runtime(r spec.Runtime) wire.Runtime {
	out := wire.Runtime{
		ID: string(r.ID), Name: r.Name, Image: r.Image, Description: r.Description, IconURL: r.IconURL, Color: r.Color,
		URL: r.URL, Tags: append([]string{}, r.Tags...), Readme: r.Readme, Built: r.Digest != "", Digest: r.Digest,
		Source: r.Source, Missing: r.Missing, SizeBytes: r.SizeBytes, CreatedAt: route.Optional(r.CreatedAt), Requirements: wire.Requirements{Network: r.NeedsNetwork},
	}
	need := quantity.FormatResources(r.Requires)
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
