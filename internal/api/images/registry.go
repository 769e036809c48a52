package images

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Registries are the routes of the registries that a workspace signs in to.
type Registries struct{ Service *registry.Registries }

type registryInput struct {
	ID string `path:"registry" maxLength:"64" doc:"The registry's id."`
}

type createRegistryInput struct{ Body wire.CreateRegistry }

type updateRegistryInput struct {
	ID   string `path:"registry" maxLength:"64" doc:"The registry's id."`
	Body wire.UpdateRegistry
}

// Register adds the routes.
func (h *Registries) Register(m *route.Mux) {
	tags := []string{"images"}
	const one = "/v1/registries/{registry}"
	route.JSON(m, huma.Operation{
		OperationID: "create-registry", Method: http.MethodPost, Path: "/v1/registries", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Add a registry", Description: "How the workspace signs in to a container registry. Images of its host are pulled with it from then on.",
	}, h.createRegistry)
	route.JSON(m, huma.Operation{
		OperationID: "list-registries", Method: http.MethodGet, Path: "/v1/registries", Tags: tags,
		Summary: "List registries", Description: "Those of the workspace, without their passwords, the oldest first.",
	}, h.listRegistries)
	route.JSON(m, huma.Operation{
		OperationID: "get-registry", Method: http.MethodGet, Path: one, Tags: tags,
		Summary: "Look at a registry", Description: "Without its password.",
	}, h.getRegistry)
	route.JSON(m, huma.Operation{
		OperationID: "update-registry", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Change a registry", Description: "Omitted fields stay, also the password.",
	}, h.updateRegistry)
	route.JSON(m, huma.Operation{
		OperationID: "delete-registry", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a registry", Description: "Images that need it cannot be pulled any more; sandboxes made from them go on.",
	}, h.deleteRegistry)
}

func (h *Registries) createRegistry(ctx context.Context, in *createRegistryInput) (*route.Body[wire.Registry], error) {
	c, b := route.Caller(ctx), &in.Body
	r, err := h.Service.Create(ctx, c.Workspace, c.User, registry.Fields{
		Name: &b.Name, Server: &b.Server, Username: &b.Username, Password: &b.Password, Email: b.Email, Enabled: b.Enabled, Verify: b.Verify,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(showRegistry(r)), nil
}

func (h *Registries) listRegistries(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Registry]], error) {
	list, err := h.Service.List(ctx, route.Caller(ctx).Workspace)
	return route.PagedOf(*in, list, err, page.Order[registry.Credential]{
		Name: "registries", Key: func(r registry.Credential) string { return page.ByTime(r.CreatedAt, string(r.ID)) },
	}, showRegistry)
}

func (h *Registries) getRegistry(ctx context.Context, in *registryInput) (*route.Body[wire.Registry], error) {
	r, err := h.Service.Get(ctx, route.Caller(ctx).Workspace, sandbox.RegistryID(in.ID))
	if err != nil {
		return nil, err
	}
	return route.Reply(showRegistry(r)), nil
}

func (h *Registries) updateRegistry(ctx context.Context, in *updateRegistryInput) (*route.Body[wire.Registry], error) {
	b := &in.Body
	r, err := h.Service.Update(ctx, route.Caller(ctx).Workspace, sandbox.RegistryID(in.ID), registry.Fields{
		Name: b.Name, Server: b.Server, Username: b.Username, Password: b.Password, Email: b.Email, Enabled: b.Enabled, Verify: b.Verify,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(showRegistry(r)), nil
}

func (h *Registries) deleteRegistry(ctx context.Context, in *registryInput) (*struct{}, error) {
	return nil, h.Service.Delete(ctx, route.Caller(ctx).Workspace, sandbox.RegistryID(in.ID))
}

func showRegistry(r registry.Credential) wire.Registry {
	return wire.Registry{
		ID: string(r.ID), Name: r.Name, Server: r.Server, Username: r.Username, Email: r.Email, Enabled: r.Enabled,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}
