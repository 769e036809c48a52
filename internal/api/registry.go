package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

type registryInput struct {
	ID string `path:"registry" maxLength:"64" doc:"The registry's id."`
}

type createRegistryInput struct{ Body wire.CreateRegistry }

type updateRegistryInput struct {
	ID   string `path:"registry" maxLength:"64" doc:"The registry's id."`
	Body wire.UpdateRegistry
}

func (s *Server) registerRegistries(a huma.API) {
	tags := []string{"images"}
	const one = "/v1/registries/{registry}"
	route(a, huma.Operation{
		OperationID: "create-registry", Method: http.MethodPost, Path: "/v1/registries", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Add a registry", Description: "How the workspace signs in to a container registry. Images of its host are pulled with it from then on.",
	}, s.createRegistry)
	route(a, huma.Operation{
		OperationID: "list-registries", Method: http.MethodGet, Path: "/v1/registries", Tags: tags,
		Summary: "List registries", Description: "Those of the workspace, without their passwords, the oldest first.",
	}, s.listRegistries)
	route(a, huma.Operation{
		OperationID: "get-registry", Method: http.MethodGet, Path: one, Tags: tags,
		Summary: "Look at a registry", Description: "Without its password.",
	}, s.getRegistry)
	route(a, huma.Operation{
		OperationID: "update-registry", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Change a registry", Description: "Omitted fields stay, also the password.",
	}, s.updateRegistry)
	route(a, huma.Operation{
		OperationID: "delete-registry", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a registry", Description: "Images that need it cannot be pulled any more; sandboxes made from them go on.",
	}, s.deleteRegistry)
}

func (s *Server) createRegistry(ctx context.Context, in *createRegistryInput) (*body[wire.Registry], error) {
	c, b := caller(ctx), &in.Body
	r, err := s.deps.Registries.Create(ctx, c.Workspace, c.User, registry.Fields{
		Name: &b.Name, Server: &b.Server, Username: &b.Username, Password: &b.Password, Email: b.Email, Enabled: b.Enabled, Verify: b.Verify,
	})
	if err != nil {
		return nil, err
	}
	return reply(showRegistry(r)), nil
}

func (s *Server) listRegistries(ctx context.Context, in *PageInput) (*body[wire.Page[wire.Registry]], error) {
	list, err := s.deps.Registries.List(ctx, caller(ctx).Workspace)
	return pagedOf(*in, list, err, page.Order[registry.Credential]{
		Name: "registries", Key: func(r registry.Credential) string { return page.ByTime(r.CreatedAt, string(r.ID)) },
	}, showRegistry)
}

func (s *Server) getRegistry(ctx context.Context, in *registryInput) (*body[wire.Registry], error) {
	r, err := s.deps.Registries.Get(ctx, caller(ctx).Workspace, sandbox.RegistryID(in.ID))
	if err != nil {
		return nil, err
	}
	return reply(showRegistry(r)), nil
}

func (s *Server) updateRegistry(ctx context.Context, in *updateRegistryInput) (*body[wire.Registry], error) {
	b := &in.Body
	r, err := s.deps.Registries.Update(ctx, caller(ctx).Workspace, sandbox.RegistryID(in.ID), registry.Fields{
		Name: b.Name, Server: b.Server, Username: b.Username, Password: b.Password, Email: b.Email, Enabled: b.Enabled, Verify: b.Verify,
	})
	if err != nil {
		return nil, err
	}
	return reply(showRegistry(r)), nil
}

func (s *Server) deleteRegistry(ctx context.Context, in *registryInput) (*struct{}, error) {
	return nil, s.deps.Registries.Delete(ctx, caller(ctx).Workspace, sandbox.RegistryID(in.ID))
}

func showRegistry(r registry.Credential) wire.Registry {
	return wire.Registry{
		ID: string(r.ID), Name: r.Name, Server: r.Server, Username: r.Username, Email: r.Email, Enabled: r.Enabled,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}
