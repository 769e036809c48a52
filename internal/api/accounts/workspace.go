package accounts

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Workspaces are the routes of workspaces.
type Workspaces struct{ Accounts *auth.Accounts }

// WorkspaceRef is the path parameter that names a workspace. By the time a
// handler runs, the identity acts in it.
type WorkspaceRef struct {
	Workspace string `path:"workspace" maxLength:"64" doc:"The workspace's id or slug."`
}

type (
	createWorkspaceInput struct{ Body wire.CreateWorkspace }
	updateWorkspaceInput struct {
		WorkspaceRef
		Body wire.UpdateWorkspace
	}
)

// Register adds the routes.
func (h *Workspaces) Register(m *route.Mux) {
	const one = "/v1/workspaces/{workspace}"
	tags := []string{"workspaces"}
	route.JSON(m, huma.Operation{
		OperationID: "create-workspace", Method: http.MethodPost, Path: "/v1/workspaces", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a workspace", Description: "The caller becomes its owner.",
	}, h.createWorkspace)
	route.JSON(m, huma.Operation{
		OperationID: "list-workspaces", Method: http.MethodGet, Path: "/v1/workspaces", Tags: tags,
		Summary: "List workspaces", Description: "Those that the caller is a member of, with its role, by name.",
	}, h.listWorkspaces)
	route.JSON(m, huma.Operation{
		OperationID: "get-workspace", Method: http.MethodGet, Path: one, Tags: tags,
		Summary: "Get a workspace", Description: "With its members.",
	}, h.getWorkspace)
	route.JSON(m, huma.Operation{
		OperationID: "update-workspace", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Change a workspace", Description: "Only what is given changes.",
	}, h.updateWorkspace)
	route.JSON(m, huma.Operation{
		OperationID: "delete-workspace", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a workspace", Description: "Nobody can use it any more at once; its sandboxes and snapshots end in the background. For owners. The installation's first workspace stays.",
	}, h.deleteWorkspace)
}

func (h *Workspaces) createWorkspace(ctx context.Context, in *createWorkspaceInput) (*route.Body[wire.WorkspaceDetail], error) {
	id, _ := auth.FromContext(ctx)
	ws, err := h.Accounts.CreateWorkspace(ctx, id, in.Body.Name, in.Body.Slug, in.Body.Description)
	if err != nil {
		return nil, err
	}
	id.Workspace, id.Role = ws.ID, ws.Role
	return h.workspaceDetail(ctx, id)
}

func (h *Workspaces) workspaceDetail(ctx context.Context, id auth.Identity) (*route.Body[wire.WorkspaceDetail], error) {
	ws, list, err := h.Accounts.Workspace(ctx, id)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.WorkspaceDetail{Workspace: workspace(ws), Members: members(list)}), nil
}

func (h *Workspaces) listWorkspaces(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Workspace]], error) {
	id, _ := auth.FromContext(ctx)
	list, err := h.Accounts.Workspaces(ctx, id)
	return route.PagedOf(*in, list, err, page.Order[account.Workspace]{
		Name: "workspaces", Key: func(ws account.Workspace) string { return ws.Name + "\x00" + string(ws.ID) },
	}, workspace)
}

func (h *Workspaces) getWorkspace(ctx context.Context, _ *WorkspaceRef) (*route.Body[wire.WorkspaceDetail], error) {
	id, _ := auth.FromContext(ctx)
	return h.workspaceDetail(ctx, id)
}

func (h *Workspaces) updateWorkspace(ctx context.Context, in *updateWorkspaceInput) (*route.Body[wire.WorkspaceDetail], error) {
	id, _ := auth.FromContext(ctx)
	if _, err := h.Accounts.UpdateWorkspace(ctx, id, account.WorkspaceUpdate{
		Name: in.Body.Name, Slug: in.Body.Slug, Description: in.Body.Description, URLAccess: (*sandbox.URLAccess)(in.Body.URLAccess),
		CodeScan: (*account.CodeScan)(in.Body.CodeScan), CodeScanRules: (*account.ScanRules)(in.Body.CodeScanRules),
		AuditOutput: in.Body.AuditOutput,
	}); err != nil {
		return nil, err
	}
	return h.workspaceDetail(ctx, id)
}

func (h *Workspaces) deleteWorkspace(ctx context.Context, _ *WorkspaceRef) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, h.Accounts.DeleteWorkspace(ctx, id)
}

func workspace(ws account.Workspace) wire.Workspace {
	return wire.Workspace{
		ID: string(ws.ID), Name: ws.Name, Slug: ws.Slug, Description: ws.Description, Role: string(ws.Role),
		CreatedBy: string(ws.CreatedBy), CreatedAt: ws.CreatedAt, UpdatedAt: ws.UpdatedAt, URLAccess: wire.URLAccess(cmp.Or(ws.URLAccess, sandbox.URLOpen)),
		CodeScan: wire.CodeScanMode(cmp.Or(ws.CodeScan, account.CodeScanOff)), CodeScanRules: append([]string{}, ws.CodeScanRules...),
		AuditOutput: ws.AuditOutput,
	}
}
