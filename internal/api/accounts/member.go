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

// Members are the routes of the members of workspaces, and of invitations.
type Members struct{ Accounts *auth.Accounts }

type (
	workspaceListInput struct {
		WorkspaceRef
		route.PageInput
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

// Register adds the routes.
func (h *Members) Register(m *route.Mux) {
	const one = "/v1/workspaces/{workspace}"
	tags := []string{"workspaces"}
	route.JSON(m, huma.Operation{
		OperationID: "add-member", Method: http.MethodPost, Path: one + "/members", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Add a member", Description: "By e-mail address or name. An address that is nobody's is invited: pass the code on, it is shown only now. Only owners make owners.",
	}, h.addMember)
	route.JSON(m, huma.Operation{
		OperationID: "list-members", Method: http.MethodGet, Path: one + "/members", Tags: tags,
		Summary: "List members", Description: "In the order they came.",
	}, h.listMembers)
	route.JSON(m, huma.Operation{
		OperationID: "set-member-role", Method: http.MethodPut, Path: one + "/members/{user}", Tags: tags,
		Summary: "Change a member's role", Description: "Only owners change owners. The last owner stays one.",
	}, h.setRole)
	route.JSON(m, huma.Operation{
		OperationID: "delete-member", Method: http.MethodDelete, Path: one + "/members/{user}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a member", Description: "Its tokens of the workspace are revoked. Every member may leave; the last owner stays.",
	}, h.removeMember)
	route.JSON(m, huma.Operation{
		OperationID: "list-invitations", Method: http.MethodGet, Path: one + "/invitations", Tags: tags,
		Summary: "List invitations", Description: "Those that are open, newest first.",
	}, h.listInvitations)
	route.JSON(m, huma.Operation{
		OperationID: "delete-invitation", Method: http.MethodDelete, Path: one + "/invitations/{invitation}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Withdraw an invitation", Description: "Its code stops working.",
	}, h.withdrawInvitation)
}

func (h *Members) addMember(ctx context.Context, in *addMemberInput) (*route.Body[wire.AddedMember], error) {
	id, _ := auth.FromContext(ctx)
	if (in.Body.Email == "") == (in.Body.Name == "") {
		return nil, sandbox.InvalidField("email", "give either email or name")
	}
	m, i, code, err := h.Accounts.AddMember(ctx, id, cmp.Or(in.Body.Email, in.Body.Name), account.Role(in.Body.Role))
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
	return route.Reply(out), nil
}

func (h *Members) listMembers(ctx context.Context, in *workspaceListInput) (*route.Body[wire.Page[wire.Member]], error) {
	id, _ := auth.FromContext(ctx)
	_, list, err := h.Accounts.Workspace(ctx, id)
	return route.PagedOf(in.PageInput, list, err, page.Order[account.Member]{
		Name: "members", Key: func(m account.Member) string { return page.ByTime(m.CreatedAt, string(m.User)) },
	}, member)
}

func (h *Members) setRole(ctx context.Context, in *setRoleInput) (*route.Body[wire.Member], error) {
	id, _ := auth.FromContext(ctx)
	m, err := h.Accounts.SetRole(ctx, id, sandbox.UserID(in.User), account.Role(in.Body.Role))
	if err != nil {
		return nil, err
	}
	return route.Reply(member(m)), nil
}

func (h *Members) removeMember(ctx context.Context, in *memberInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, h.Accounts.RemoveMember(ctx, id, sandbox.UserID(in.User))
}

func (h *Members) listInvitations(ctx context.Context, in *workspaceListInput) (*route.Body[wire.Page[wire.Invitation]], error) {
	id, _ := auth.FromContext(ctx)
	list, err := h.Accounts.Invitations(ctx, id)
	return route.PagedOf(in.PageInput, list, err, page.Order[account.Invitation]{
		Name: "invitations", Key: func(i account.Invitation) string { return page.ByTime(i.CreatedAt, i.ID) }, Descending: true,
	}, invitation)
}

func (h *Members) withdrawInvitation(ctx context.Context, in *invitationInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, h.Accounts.WithdrawInvitation(ctx, id, in.Invitation)
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
