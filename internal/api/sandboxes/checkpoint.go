package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Checkpoints are the routes of checkpoints.
type Checkpoints struct {
	Service *lifecycle.Service
	View    View
}

type checkpointInput struct {
	route.SandboxRef
	Body wire.CreateCheckpoint
}

type checkpointRef struct {
	route.SandboxRef
	Checkpoint string `path:"checkpoint" maxLength:"128" doc:"The checkpoint: its id or its name, percent-encoded."`
}

type listCheckpointsInput struct {
	route.SandboxRef
	route.PageInput
}

// Register adds the routes.
func (h *Checkpoints) Register(m *route.Mux) {
	const checkpoints = "/v1/sandboxes/{sandbox}/checkpoints"
	tags := []string{"state"}
	route.JSON(m, huma.Operation{
		OperationID: "create-checkpoint", Method: http.MethodPost, Path: checkpoints, Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Save a sandbox's state", Description: "Saves memory and files of a running or paused sandbox under a name. A running one stands still meanwhile and goes on.",
	}, h.create)
	route.JSON(m, huma.Operation{
		OperationID: "list-checkpoints", Method: http.MethodGet, Path: checkpoints, Tags: tags,
		Summary: "List a sandbox's checkpoints", Description: "The oldest first. An ended sandbox has none.",
	}, h.list)
	route.JSON(m, huma.Operation{
		OperationID: "restore-checkpoint", Method: http.MethodPost, Path: checkpoints + "/{checkpoint}/restore", Tags: tags,
		Summary: "Go back to a checkpoint", Description: "Memory and files are as they were, id and URL stay; what happened since is lost, the checkpoint stays. Answers when the sandbox runs.",
	}, h.restore)
	route.JSON(m, huma.Operation{
		OperationID: "delete-checkpoint", Method: http.MethodDelete, Path: checkpoints + "/{checkpoint}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a checkpoint",
	}, h.delete)
}

func (h *Checkpoints) create(ctx context.Context, in *checkpointInput) (*route.Body[wire.Checkpoint], error) {
	c, err := h.Service.Checkpoints().Create(ctx, route.Caller(ctx), in.Ref, in.Body.Name)
	if err != nil {
		return nil, err
	}
	return route.Reply(checkpoint(c)), nil
}

func (h *Checkpoints) list(ctx context.Context, in *listCheckpointsInput) (*route.Body[wire.Page[wire.Checkpoint]], error) {
	list, err := h.Service.Checkpoints().List(ctx, route.Caller(ctx), in.Ref)
	return route.PagedOf(in.PageInput, list, err, page.Order[sandbox.Checkpoint]{
		Name: "checkpoints", Key: func(c sandbox.Checkpoint) string { return page.ByTime(c.CreatedAt, string(c.ID)) },
	}, checkpoint)
}

func (h *Checkpoints) restore(ctx context.Context, in *checkpointRef) (*route.Body[wire.Sandbox], error) {
	return h.View.of(ctx).changed(h.Service.Checkpoints().Restore(ctx, route.Caller(ctx), in.Ref, in.Checkpoint))
}

func (h *Checkpoints) delete(ctx context.Context, in *checkpointRef) (*struct{}, error) {
	return nil, h.Service.Checkpoints().Delete(ctx, route.Caller(ctx), in.Ref, in.Checkpoint)
}

func checkpoint(c sandbox.Checkpoint) wire.Checkpoint {
	return wire.Checkpoint{
		ID: string(c.ID), Name: c.Name, SandboxID: string(c.Sandbox), ParentID: string(c.Parent),
		SizeBytes: c.SizeBytes, CreatedBy: string(c.CreatedBy), CreatedAt: c.CreatedAt, CopiedAt: route.Optional(c.CopiedAt),
	}
}
