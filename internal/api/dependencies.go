package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/wire"
)

type validateInput struct {
	Body wire.ValidateDependencies
}

func (s *Server) registerDependencies(a huma.API) {
	route(a, huma.Operation{
		OperationID: "validate-dependencies", Method: http.MethodPost, Path: "/v1/dependencies/validate", Tags: []string{"images"},
		Summary: "Check Debian packages", Description: "Whether they can be installed in an image. May take some seconds.",
	}, s.validateDependencies)
}

func (s *Server) validateDependencies(ctx context.Context, in *validateInput) (*body[wire.ValidatedDependencies], error) {
	checks, err := s.svc.Prepare().ValidateDependencies(ctx, caller(ctx), in.Body.Image, in.Body.Dependencies)
	if err != nil {
		return nil, err
	}
	out := wire.ValidatedDependencies{Valid: []string{}, Invalid: []wire.InvalidDependency{}}
	for _, c := range checks {
		if c.Reason == "" {
			out.Valid = append(out.Valid, c.Name)
		} else {
			out.Invalid = append(out.Invalid, wire.InvalidDependency{Name: c.Name, Reason: c.Reason, Versions: c.Versions})
		}
	}
	return reply(out), nil
}
