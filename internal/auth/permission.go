package auth

import (
	"slices"

	"github.com/modbox/modbox/internal/sandbox"
)

// Permissions of routes in addition to the permissions of package sandbox.
const (
	// Public is for routes that need no credentials.
	Public sandbox.Permission = "public"
	// SignedIn is for routes that need valid credentials and nothing else.
	SignedIn sandbox.Permission = "signed_in"
)

// granted lists what each role adds to the role before it.
var granted = []struct {
	role        sandbox.Role
	permissions []sandbox.Permission
}{
	{sandbox.RoleViewer, []sandbox.Permission{
		sandbox.SandboxesRead, sandbox.ImagesRead, sandbox.WorkspacesRead, sandbox.TokensRead, sandbox.TokensWrite,
	}},
	{sandbox.RoleMember, []sandbox.Permission{sandbox.SandboxesWrite}},
	{sandbox.RoleAdmin, []sandbox.Permission{sandbox.ImagesWrite, sandbox.MembersWrite, sandbox.WorkspacesWrite, sandbox.AuditRead}},
	{sandbox.RoleOwner, []sandbox.Permission{sandbox.WorkspacesDelete}},
}

// implied lists the scope that another scope includes: permission to write includes permission to
// read.
var implied = map[sandbox.Permission]sandbox.Permission{
	sandbox.SandboxesWrite:   sandbox.SandboxesRead,
	sandbox.ImagesWrite:      sandbox.ImagesRead,
	sandbox.WorkspacesWrite:  sandbox.WorkspacesRead,
	sandbox.WorkspacesDelete: sandbox.WorkspacesRead,
	sandbox.MembersWrite:     sandbox.WorkspacesRead,
	sandbox.TokensWrite:      sandbox.TokensRead,
}

// RoleHas reports whether the role gives the permission in its workspace.
func RoleHas(role sandbox.Role, p sandbox.Permission) bool {
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
func (id Identity) May(p sandbox.Permission) bool {
	switch {
	case p == Public || p == SignedIn:
		return true
	case !scoped(id.Scopes, p):
		return false
	case id.WorkspaceOnly && beyond(p):
		return false
	case p == sandbox.Administer:
		return id.Administrator
	case p == sandbox.AccountWrite:
		return true // every user has an account, in any workspace
	}
	return RoleHas(id.Role, p)
}

// beyond reports whether p reaches beyond a workspace: a token that is limited to a workspace could
// use p to get access to others.
func beyond(p sandbox.Permission) bool { return p == sandbox.Administer || p == sandbox.AccountWrite }

// scoped reports whether scopes include p; empty scopes include everything.
func scoped(scopes []sandbox.Permission, p sandbox.Permission) bool {
	return len(scopes) == 0 || slices.ContainsFunc(scopes, func(s sandbox.Permission) bool { return s == p || implied[s] == p })
}

// require returns code Forbidden, with the reason, unless the identity may do p.
func (id Identity) require(p sandbox.Permission) error {
	switch {
	case id.May(p):
		return nil
	case !scoped(id.Scopes, p):
		return sandbox.Errorf(sandbox.Forbidden, "this token lacks the scope %s", p)
	case id.WorkspaceOnly && beyond(p):
		return sandbox.Errorf(sandbox.Forbidden, "this token is limited to its workspace, which does not allow %s", p)
	case p == sandbox.Administer:
		return sandbox.Errorf(sandbox.Forbidden, "only an administrator of this installation may do that")
	case id.Role == "":
		return sandbox.Errorf(sandbox.Forbidden, "you are not a member of any workspace; create one or ask to be added to one")
	}
	return sandbox.Errorf(sandbox.Forbidden, "your role in this workspace is %s, which does not allow %s", id.Role, p)
}
