package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/modbox/modbox/client/wire"
)

// Workspaces has the calls for workspaces, and their members, invitations and quotas.
type Workspaces struct{ *transport }

// Workspace is a tenant of the server.
type Workspace = wire.Workspace

// CodeScanMode is the policy of a workspace for code.
type CodeScanMode = wire.CodeScanMode

// The policies: CodeScanWarn reports findings, and with CodeScanBlock code with findings does not run.
const (
	CodeScanOff   = wire.CodeScanOff
	CodeScanWarn  = wire.CodeScanWarn
	CodeScanBlock = wire.CodeScanBlock
)

// WorkspaceDetail is a workspace with its members.
type WorkspaceDetail = wire.WorkspaceDetail

// Member is a user of a workspace.
type Member = wire.Member

// Invitation is an open invitation to a workspace.
type Invitation = wire.Invitation

// NewInvitation is a new invitation.
type NewInvitation = wire.NewInvitation

// AddedMember is the result of adding a member: one of the two fields is not nil.
type AddedMember = wire.AddedMember

// WorkspaceOptions describe a workspace. Empty fields stay, or get the server's default.
type WorkspaceOptions struct {
	Name        string `json:"name,omitempty"`
	Slug        string `json:"slug,omitempty"`
	Description string `json:"description,omitempty"`
	// URLAccess names the least credential for the management routes on the URLs of its
	// sandboxes. Only an update takes it.
	URLAccess URLAccess `json:"url_access,omitempty"`
	// CodeScan says whether code is scanned before it runs. Only an update takes it.
	CodeScan CodeScanMode `json:"code_scan,omitempty"`
	// CodeScanRules are the rules that count; a pointer to an empty list is all. Only an update takes it.
	CodeScanRules *[]string `json:"code_scan_rules,omitempty"`
	// AuditOutput is whether the audit log has the output of commands and code. Only an update takes it.
	AuditOutput *bool `json:"audit_output,omitempty"`
}

func workspacePath(id, rest string) string { return "/v1/workspaces/" + url.PathEscape(id) + rest }

// Create makes a workspace that the caller owns; o.Name must be set.
// Errors: Invalid; Exists for a slug that is taken.
func (c *Workspaces) Create(ctx context.Context, o WorkspaceOptions) (*WorkspaceDetail, error) {
	return fetch[WorkspaceDetail](ctx, c.transport, request{method: http.MethodPost, path: "/v1/workspaces", body: o})
}

// List lists the workspaces that the caller is a member of, by name.
func (c *Workspaces) List() *List[Workspace] {
	return newList[Workspace](c.transport, "/v1/workspaces", nil)
}

// Get returns a workspace with its members. Errors: NotFound.
func (c *Workspaces) Get(ctx context.Context, id string) (*WorkspaceDetail, error) {
	return fetch[WorkspaceDetail](ctx, c.transport, request{method: http.MethodGet, path: workspacePath(id, ""), repeat: true})
}

// Update changes the settings that o sets. Errors: NotFound; Invalid; Exists.
func (c *Workspaces) Update(ctx context.Context, id string, o WorkspaceOptions) (*WorkspaceDetail, error) {
	return fetch[WorkspaceDetail](ctx, c.transport, request{method: http.MethodPatch, path: workspacePath(id, ""), body: o})
}

// Delete deletes a workspace with everything in it; its sandboxes end in the background.
// Errors: NotFound; Forbidden; Conflict for the server's first workspace.
func (c *Workspaces) Delete(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: workspacePath(id, "")}, nil)
}

// AddMember adds the user with that e-mail address, or that name when it has no @, to a workspace.
// An unknown address is invited. Errors: NotFound; Forbidden; Exists.
func (c *Workspaces) AddMember(ctx context.Context, workspace, who, role string) (*AddedMember, error) {
	body := wire.AddMember{Role: role}
	if strings.Contains(who, "@") {
		body.Email = who
	} else {
		body.Name = who
	}
	return fetch[AddedMember](ctx, c.transport, request{method: http.MethodPost, path: workspacePath(workspace, "/members"), body: body})
}

// SetRole changes a member's role. Errors: NotFound; Forbidden; Conflict when no
// owner would be left.
func (c *Workspaces) SetRole(ctx context.Context, workspace, user, role string) (*Member, error) {
	body := wire.SetRole{Role: role}
	return fetch[Member](ctx, c.transport, request{method: http.MethodPut, path: workspacePath(workspace, "/members/"+url.PathEscape(user)), body: body, repeat: true})
}

// DeleteMember ends a membership; everybody may end its own. Errors: NotFound;
// Forbidden; Conflict when no owner would be left.
func (c *Workspaces) DeleteMember(ctx context.Context, workspace, user string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: workspacePath(workspace, "/members/"+url.PathEscape(user))}, nil)
}

// Members lists the members of a workspace, in the order they came. Errors: NotFound.
func (c *Workspaces) Members(workspace string) *List[Member] {
	return newList[Member](c.transport, workspacePath(workspace, "/members"), nil)
}

// Invitations lists the open invitations to a workspace, newest first. Errors: NotFound.
func (c *Workspaces) Invitations(workspace string) *List[Invitation] {
	return newList[Invitation](c.transport, workspacePath(workspace, "/invitations"), nil)
}

// DeleteInvitation ends an invitation. Errors: NotFound.
func (c *Workspaces) DeleteInvitation(ctx context.Context, workspace, invitation string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: workspacePath(workspace, "/invitations/"+url.PathEscape(invitation))}, nil)
}
