package images

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Catalogue are the routes of the image catalogue of a workspace.
type Catalogue struct{ Service *catalogue.Catalogue }

type sandboxImageInput struct {
	ID string `path:"sandbox_image" maxLength:"64" doc:"The image's id."`
}

type listSandboxImagesInput struct {
	EnabledOnly bool `query:"enabled_only" doc:"Only images that sandboxes may be made from."`
	route.PageInput
}

type createSandboxImageInput struct{ Body wire.CreateSandboxImage }

type updateSandboxImageInput struct {
	ID   string `path:"sandbox_image" maxLength:"64" doc:"The image's id."`
	Body wire.UpdateSandboxImage
}

// Register adds the routes.
func (h *Catalogue) Register(m *route.Mux) {
	tags := []string{"images"}
	const one = "/v1/sandbox-images/{sandbox_image}"
	route.JSON(m, huma.Operation{
		OperationID: "create-sandbox-image", Method: http.MethodPost, Path: "/v1/sandbox-images", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Add an image to the catalogue", Description: "A reference with the defaults of the sandboxes that are made from it by its id. Nothing is pulled yet.",
	}, h.createSandboxImage)
	route.JSON(m, huma.Operation{
		OperationID: "list-sandbox-images", Method: http.MethodGet, Path: "/v1/sandbox-images", Tags: tags,
		Summary: "List the catalogue", Description: "The built-in images, the default first, and then the workspace's own, oldest first. /v1/images lists the images on the server's disk.",
	}, h.listSandboxImages)
	route.JSON(m, huma.Operation{
		OperationID: "get-sandbox-image", Method: http.MethodGet, Path: one, Tags: tags,
		Summary: "Look at an image of the catalogue", Description: "A built-in one or one of the workspace's own.",
	}, h.getSandboxImage)
	route.JSON(m, huma.Operation{
		OperationID: "update-sandbox-image", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Change an image of the catalogue", Description: "Omitted fields stay. Sandboxes that exist stay as they are.",
	}, h.updateSandboxImage)
	route.JSON(m, huma.Operation{
		OperationID: "delete-sandbox-image", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove an image from the catalogue", Description: "Sandboxes that were made from it go on.",
	}, h.deleteSandboxImage)
}

// changer returns the caller that changes the catalogue.
func changer(ctx context.Context) catalogue.Caller {
	id, _ := auth.FromContext(ctx)
	return catalogue.Caller{User: id.User, Workspace: id.Workspace, Administrator: id.May(account.Administer)}
}

func (h *Catalogue) createSandboxImage(ctx context.Context, in *createSandboxImageInput) (*route.Body[wire.SandboxImage], error) {
	b := &in.Body
	e, err := h.Service.Create(ctx, changer(ctx), catalogue.Fields{
		Name: &b.Name, Image: &b.Image, Tag: b.Tag, Description: b.Description, Enabled: b.Enabled, IsDefault: b.IsDefault,
		MemoryMB: b.MemoryMB, ReadinessPort: b.ReadinessPort, TTLSeconds: b.TTLSeconds, Registry: b.RegistryID,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(showSandboxImage(e)), nil
}

func (h *Catalogue) listSandboxImages(ctx context.Context, in *listSandboxImagesInput) (*route.Body[wire.Page[wire.SandboxImage]], error) {
	list, err := h.Service.List(ctx, route.Caller(ctx).Workspace, in.EnabledOnly)
	return route.PagedOf(in.PageInput, list, err, page.Order[catalogue.Listing]{Name: "catalogue", Key: func(e catalogue.Listing) string {
		if e.Workspace == "" {
			return rank(false) + rank(!e.IsDefault) + e.Name + ":" + e.Tag + " " + string(e.ID)
		}
		return rank(true) + page.ByTime(e.CreatedAt, string(e.ID))
	}}, showSandboxImage)
}

func (h *Catalogue) getSandboxImage(ctx context.Context, in *sandboxImageInput) (*route.Body[wire.SandboxImage], error) {
	e, err := h.Service.Get(ctx, route.Caller(ctx).Workspace, sandbox.ImageID(in.ID))
	if err != nil {
		return nil, err
	}
	return route.Reply(showSandboxImage(e)), nil
}

func (h *Catalogue) updateSandboxImage(ctx context.Context, in *updateSandboxImageInput) (*route.Body[wire.SandboxImage], error) {
	b := &in.Body
	e, err := h.Service.Update(ctx, changer(ctx), sandbox.ImageID(in.ID), catalogue.Fields{
		Name: b.Name, Image: b.Image, Tag: b.Tag, Description: b.Description, Enabled: b.Enabled, IsDefault: b.IsDefault,
		MemoryMB: b.MemoryMB, ReadinessPort: b.ReadinessPort, TTLSeconds: b.TTLSeconds, Registry: b.RegistryID,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(showSandboxImage(e)), nil
}

func (h *Catalogue) deleteSandboxImage(ctx context.Context, in *sandboxImageInput) (*struct{}, error) {
	return nil, h.Service.Delete(ctx, route.Caller(ctx).Workspace, sandbox.ImageID(in.ID))
}

func showSandboxImage(e catalogue.Listing) wire.SandboxImage {
	return wire.SandboxImage{
		ID: string(e.ID), Name: e.Name, Image: e.Image, Tag: e.Tag, Description: e.Description,
		Builtin: e.Workspace == "", Enabled: e.Enabled, IsDefault: e.IsDefault, MemoryMB: e.MemoryBytes >> 20,
		ReadinessPort: int(e.ReadinessPort), TTLSeconds: int64(e.TTL / time.Second),
		RegistryID: string(e.Registry), RegistryName: e.RegistryName, WorkspaceID: string(e.Workspace),
		CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
	}
}
