package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// WorkspaceRef is the path parameter that names a workspace. By the time a
// handler runs, the identity acts in it.
type WorkspaceRef struct {
	Workspace string `path:"workspace" maxLength:"64" doc:"The workspace's id or slug."`
}

type (
	workspaceListInput struct {
		WorkspaceRef
		PageInput
	}
	createWorkspaceInput struct{ Body wire.CreateWorkspace }
	updateWorkspaceInput struct {
		WorkspaceRef
		Body wire.UpdateWorkspace
	}
	addMemberInput struct {
		WorkspaceRef
		Body wire.AddMember
	}
	memberInput struct {
		WorkspaceRef
		User string `path:"user" maxLength:"64" doc:"The user's id."`
	}
	setRoleInput struct {
		WorkspaceRef
		User string `path:"user" maxLength:"64" doc:"The user's id."`
		Body wire.SetRole
	}
	invitationInput struct {
		WorkspaceRef
		Invitation string `path:"invitation" maxLength:"64" doc:"The invitation's id."`
	}
)

func (s *Server) registerWorkspaces(a huma.API) {
	const one = "/v1/workspaces/{workspace}"
	tags := []string{"workspaces"}
	route(a, huma.Operation{
		OperationID: "create-workspace", Method: http.MethodPost, Path: "/v1/workspaces", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a workspace", Description: "The caller becomes its owner.",
	}, s.createWorkspace)
	route(a, huma.Operation{
		OperationID: "list-workspaces", Method: http.MethodGet, Path: "/v1/workspaces", Tags: tags,
		Summary: "List workspaces", Description: "Those that the caller is a member of, with its role, by name.",
	}, s.listWorkspaces)
	route(a, huma.Operation{
		OperationID: "get-workspace", Method: http.MethodGet, Path: one, Tags: tags,
		Summary: "Get a workspace", Description: "With its members.",
	}, s.getWorkspace)
	route(a, huma.Operation{
		OperationID: "update-workspace", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Change a workspace", Description: "Only what is given changes.",
	}, s.updateWorkspace)
	route(a, huma.Operation{
		OperationID: "delete-workspace", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a workspace", Description: "Nobody can use it any more at once; its sandboxes and snapshots end in the background. For owners. The installation's first workspace stays.",
	}, s.deleteWorkspace)
	s.registerMembers(a, one, tags)
	s.registerQuotas(a, one, tags)
}

func (s *Server) registerMembers(a huma.API, one string, tags []string) {
	route(a, huma.Operation{
		OperationID: "add-member", Method: http.MethodPost, Path: one + "/members", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Add a member", Description: "By e-mail address or name. An address that is nobody's is invited: pass the code on, it is shown only now. Only owners make owners.",
	}, s.addMember)
	route(a, huma.Operation{
		OperationID: "list-members", Method: http.MethodGet, Path: one + "/members", Tags: tags,
		Summary: "List members", Description: "In the order they came.",
	}, s.listMembers)
	route(a, huma.Operation{
		OperationID: "set-member-role", Method: http.MethodPut, Path: one + "/members/{user}", Tags: tags,
		Summary: "Change a member's role", Description: "Only owners change owners. The last owner stays one.",
	}, s.setRole)
	route(a, huma.Operation{
		OperationID: "delete-member", Method: http.MethodDelete, Path: one + "/members/{user}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a member", Description: "Its tokens of the workspace are revoked. Every member may leave; the last owner stays.",
	}, s.removeMember)
	route(a, huma.Operation{
		OperationID: "list-invitations", Method: http.MethodGet, Path: one + "/invitations", Tags: tags,
		Summary: "List invitations", Description: "Those that are open, newest first.",
	}, s.listInvitations)
	route(a, huma.Operation{
		OperationID: "delete-invitation", Method: http.MethodDelete, Path: one + "/invitations/{invitation}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Withdraw an invitation", Description: "Its code stops working.",
	}, s.withdrawInvitation)
}

func (s *Server) createWorkspace(ctx context.Context, in *createWorkspaceInput) (*body[wire.WorkspaceDetail], error) {
	id, _ := auth.FromContext(ctx)
	ws, err := s.accounts.CreateWorkspace(ctx, id, in.Body.Name, in.Body.Slug, in.Body.Description)
	if err != nil {
		return nil, err
	}
	id.Workspace, id.Role = ws.ID, ws.Role
	return s.workspaceDetail(ctx, id)
}

func (s *Server) workspaceDetail(ctx context.Context, id auth.Identity) (*body[wire.WorkspaceDetail], error) {
	ws, list, err := s.accounts.Workspace(ctx, id)
	if err != nil {
		return nil, err
	}
	return reply(wire.WorkspaceDetail{Workspace: workspace(ws), Members: members(list)}), nil
}

func (s *Server) listWorkspaces(ctx context.Context, in *PageInput) (*body[wire.Page[wire.Workspace]], error) {
	id, _ := auth.FromContext(ctx)
	list, err := s.accounts.Workspaces(ctx, id)
	return pagedOf(*in, list, err, page.Order[account.Workspace]{
		Name: "workspaces", Key: func(ws account.Workspace) string { return ws.Name + "\x00" + string(ws.ID) },
	}, workspace)
}

func (s *Server) getWorkspace(ctx context.Context, _ *WorkspaceRef) (*body[wire.WorkspaceDetail], error) {
	id, _ := auth.FromContext(ctx)
	return s.workspaceDetail(ctx, id)
}

func (s *Server) updateWorkspace(ctx context.Context, in *updateWorkspaceInput) (*body[wire.WorkspaceDetail], error) {
	id, _ := auth.FromContext(ctx)
	if _, err := s.accounts.UpdateWorkspace(ctx, id, account.WorkspaceUpdate{
		Name: in.Body.Name, Slug: in.Body.Slug, Description: in.Body.Description, URLAccess: (*sandbox.URLAccess)(in.Body.URLAccess),
	}); err != nil {
		return nil, err
	}
	return s.workspaceDetail(ctx, id)
}

func (s *Server) deleteWorkspace(ctx context.Context, _ *WorkspaceRef) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, s.accounts.DeleteWorkspace(ctx, id)
}

func (s *Server) addMember(ctx context.Context, in *addMemberInput) (*body[wire.AddedMember], error) {
	id, _ := auth.FromContext(ctx)
	if (in.Body.Email == "") == (in.Body.Name == "") {
		return nil, sandbox.InvalidField("email", "give either email or name")
	}
	m, i, code, err := s.accounts.AddMember(ctx, id, cmp.Or(in.Body.Email, in.Body.Name), account.Role(in.Body.Role))
	if err != nil {
		return nil, err
	}
	var out wire.AddedMember
	if m != nil {
		added := member(*m)
		out.Member = &added
	}
	if i != nil {
		out.Invitation = &wire.NewInvitation{Invitation: invitation(*i), Code: code}
	}
	return reply(out), nil
}

func (s *Server) listMembers(ctx context.Context, in *workspaceListInput) (*body[wire.Page[wire.Member]], error) {
	id, _ := auth.FromContext(ctx)
	_, list, err := s.accounts.Workspace(ctx, id)
	return pagedOf(in.PageInput, list, err, page.Order[account.Member]{
		Name: "members", Key: func(m account.Member) string { return page.ByTime(m.CreatedAt, string(m.User)) },
	}, member)
}

func (s *Server) setRole(ctx context.Context, in *setRoleInput) (*body[wire.Member], error) {
	id, _ := auth.FromContext(ctx)
	m, err := s.accounts.SetRole(ctx, id, sandbox.UserID(in.User), account.Role(in.Body.Role))
	if err != nil {
		return nil, err
	}
	return reply(member(m)), nil
}

func (s *Server) removeMember(ctx context.Context, in *memberInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, s.accounts.RemoveMember(ctx, id, sandbox.UserID(in.User))
}

func (s *Server) listInvitations(ctx context.Context, in *workspaceListInput) (*body[wire.Page[wire.Invitation]], error) {
	id, _ := auth.FromContext(ctx)
	list, err := s.accounts.Invitations(ctx, id)
	return pagedOf(in.PageInput, list, err, page.Order[account.Invitation]{
		Name: "invitations", Key: func(i account.Invitation) string { return page.ByTime(i.CreatedAt, i.ID) }, Descending: true,
	}, invitation)
}

func (s *Server) withdrawInvitation(ctx context.Context, in *invitationInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, s.accounts.WithdrawInvitation(ctx, id, in.Invitation)
}

func workspace(ws account.Workspace) wire.Workspace {
	return wire.Workspace{
		ID: string(ws.ID), Name: ws.Name, Slug: ws.Slug, Description: ws.Description, Role: string(ws.Role),
		CreatedBy: string(ws.CreatedBy), CreatedAt: ws.CreatedAt, UpdatedAt: ws.UpdatedAt, URLAccess: wire.URLAccess(cmp.Or(ws.URLAccess, sandbox.URLOpen)),
	}
}

func member(m account.Member) wire.Member {
	return wire.Member{UserID: string(m.User), Name: m.Name, Email: m.Email, Role: string(m.Role), CreatedAt: m.CreatedAt}
}

func members(list []account.Member) []wire.Member {
	out := make([]wire.Member, 0, len(list))
	for _, m := range list {
		out = append(out, member(m))
	}
	return out
}

func invitation(i account.Invitation) wire.Invitation {
	return wire.Invitation{ID: i.ID, Email: i.Email, Role: string(i.Role), CreatedBy: string(i.CreatedBy), CreatedAt: i.CreatedAt, ExpiresAt: i.ExpiresAt}
}
