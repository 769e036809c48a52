package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
)

type validateInput struct {
	Body wire.ValidateAptPackages
}

func (s *Server) registerPackages(a huma.API) {
	route(a, huma.Operation{
		OperationID: "validate-apt-packages", Method: http.MethodPost, Path: "/v1/apt-packages/validate", Tags: []string{"images"},
		Summary: "Check Debian packages", Description: "Whether they can be installed in an image. May take some seconds.",
	}, s.validateAptPackages)
}

func (s *Server) validateAptPackages(ctx context.Context, in *validateInput) (*body[wire.ValidatedAptPackages], error) {
	checks, err := s.svc.Prepare().ValidateAptPackages(ctx, caller(ctx), in.Body.Image, in.Body.AptPackages)
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
	return reply(out), nil
}
