package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
)

// version is the route that describes the server.
type version struct{ version, driver string }

// Register adds the route.
func (h *version) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "get-version", Method: http.MethodGet, Path: "/v1/version", Tags: []string{"account"},
		Summary: "Describe the server", Description: "Its version, and the driver of its sandboxes.",
	}, h.get)
}

func (h *version) get(context.Context, *struct{}) (*route.Body[wire.Version], error) {
	return route.Reply(wire.Version{Version: h.version, Driver: h.driver}), nil
}
