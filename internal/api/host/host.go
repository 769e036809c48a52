// Package host has the route of /v1 about the machine of the server, for administrators. The route
// answers with numbers from the metrics of the server.
package host

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/sandbox"
)

// Machine has the resources of a machine.
type Machine struct {
	MemoryBytes int64
	DiskBytes   int64
	Cores       int
}

// Platform is the name of the platform of new sandboxes, and the reason for it.
type Platform struct{ Name, Reason string }

// Routes are the routes.
type Routes struct {
	Version, Driver string
	Machine         Machine
	Platform        Platform
	// Metrics are the metrics of the server; without them the route has no numbers.
	Metrics prometheus.Gatherer
}

// Register adds the route.
func (h *Routes) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "get-host", Method: http.MethodGet, Path: "/v1/host", Tags: []string{"account"},
		Summary: "Describe the machine of the server", Description: "Capacity that is promised and used, the pool, images, and how long operations take, over all workspaces. For administrators. GET /metrics has more.",
	}, h.Get)
}

// Get is GET /v1/host.
func (h *Routes) Get(context.Context, *struct{}) (*route.Body[wire.Host], error) {
	if h.Metrics == nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "this server has no metrics")
	}
	families, err := h.Metrics.Gather()
	if err != nil && len(families) == 0 {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	out := describe(read(families))
	out.Version, out.Driver, out.Cores = h.Version, h.Driver, h.Machine.Cores
	out.Platform, out.PlatformReason = h.Platform.Name, h.Platform.Reason
	out.Memory.TotalBytes, out.Disk.TotalBytes = h.Machine.MemoryBytes, h.Machine.DiskBytes
	return route.Reply(out), nil
}
