package images

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/prepare"
)

// Packages are the routes of packages that images can get.
type Packages struct{ Prepare *prepare.Service }

type validateInput struct {
	Body wire.ValidateAptPackages
}

// Register adds the routes.
func (h *Packages) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "validate-apt-packages", Method: http.MethodPost, Path: "/v1/apt-packages/validate", Tags: []string{"images"},
		Summary: "Check Debian packages", Description: "Whether they can be installed in an image. May take some seconds.",
	}, h.validateAptPackages)
}

func (h *Packages) validateAptPackages(ctx context.Context, in *validateInput) (*route.Body[wire.ValidatedAptPackages], error) {
	checks, err := h.Prepare.ValidateAptPackages(ctx, route.Caller(ctx), in.Body.Image, in.Body.AptPackages)
	if err != nil {
		return nil, err
	}
	out := wire.ValidatedAptPackages{Valid: []string{}, Invalid: []wire.InvalidAptPackage{}}
	for _, c := range checks {
		if c.Reason == "" {
			out.Valid = append(out.Valid, c.Name)
		} else {
			out.Invalid = append(out.Invalid, wire.InvalidAptPackage{Name: c.Name, Reason: c.Reason, Versions: c.Versions})
		}
	}
	return route.Reply(out), nil
}
