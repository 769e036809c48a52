package auth

import (
	"slices"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

// Permissions of routes in addition to the permissions of package sandbox.
const (
	// Public is for routes that need no credentials.
	Public account.Permission = "public"
	// SignedIn is for routes that need valid credentials and nothing else.
	SignedIn account.Permission = "signed_in"
)

// granted lists what each role adds to the role before it.
var granted = []struct {
	role        account.Role
	permissions []account.Permission
}{
	{account.RoleViewer, []account.Permission{
		account.SandboxesRead, account.ImagesRead, account.WorkspacesRead, account.TokensRead, account.TokensWrite,
	}},
	{account.RoleMember, []account.Permission{account.SandboxesWrite}},
	{account.RoleAdmin, []account.Permission{account.ImagesWrite, account.MembersWrite, account.WorkspacesWrite, account.AuditRead, account.WebhooksRead, account.WebhooksWrite}},
	{account.RoleOwner, []account.Permission{account.WorkspacesDelete}},
}

// implied lists the scope that another scope includes: permission to write includes permission to
// read.
var implied = map[account.Permission]account.Permission{
	account.SandboxesWrite:   account.SandboxesRead,
	account.ImagesWrite:      account.ImagesRead,
	account.WorkspacesWrite:  account.WorkspacesRead,
	account.WorkspacesDelete: account.WorkspacesRead,
	account.MembersWrite:     account.WorkspacesRead,
	account.TokensWrite:      account.TokensRead,
	account.WebhooksWrite:    account.WebhooksRead,
}

// RoleHas reports whether the role gives the permission in its workspace.
func RoleHas(role account.Role, p account.Permission) bool {
	for _, g := range granted {
		if slices.Contains(g.permissions, p) {
			return role.Valid()
		}
		if g.role == role {
			return false
		}
	}
	return false
}

// May reports whether the identity has the permission where it acts: its role grants it, its
// token's scopes include it, and, if the token is limited to a workspace, the permission does not
// reach beyond that workspace.
func (id Identity) May(p account.Permission) bool {
	switch {
	case p == Public || p == SignedIn:
		return true
	case !scoped(id.Scopes, p):
		return false
	case id.WorkspaceOnly && beyond(p):
		return false
	case p == account.Administer:
		return id.Administrator
	case p == account.AccountWrite:
		return true // every user has an account, in any workspace
	}
	return RoleHas(id.Role, p)
}

// InScope reports whether the identity's token includes the permission, whatever the role.
func (id Identity) InScope(p account.Permission) bool { return scoped(id.Scopes, p) }

// beyond reports whether p reaches beyond a workspace: a token that is limited to a workspace could
// use p to get access to others.
func beyond(p account.Permission) bool { return p == account.Administer || p == account.AccountWrite }

// scoped reports whether scopes include p; empty scopes include everything.
func scoped(scopes []account.Permission, p account.Permission) bool {
	return len(scopes) == 0 || slices.ContainsFunc(scopes, func(s account.Permission) bool { return s == p || implied[s] == p })
}

// require returns code Forbidden, with the reason, unless the identity may do p.
func (id Identity) require(p account.Permission) error {
	switch {
	case id.May(p):
		return nil
	case !scoped(id.Scopes, p):
		return sandbox.Errorf(sandbox.Forbidden, "this token lacks the scope %s", p)
	case id.WorkspaceOnly && beyond(p):
		return sandbox.Errorf(sandbox.Forbidden, "this token is limited to its workspace, which does not allow %s", p)
	case p == account.Administer:
		return sandbox.Errorf(sandbox.Forbidden, "only an administrator of this installation may do that")
	case id.Role == "":
		return sandbox.Errorf(sandbox.Forbidden, "you are not a member of any workspace; create one or ask to be added to one")
	}
	return sandbox.Errorf(sandbox.Forbidden, "your role in this workspace is %s, which does not allow %s", id.Role, p)
}
