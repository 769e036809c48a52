package auth

import (
	"slices"

	"github.com/modbox/modbox/internal/sandbox"
)

// What a route may need beside the permissions of package sandbox.
const (
	// Public is for routes that need no credentials.
	Public sandbox.Permission = "public"
	// SignedIn is for routes that need good credentials and nothing else.
	SignedIn sandbox.Permission = "signed_in"
)

// granted is what each role adds to the one below it.
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

// implied is what a scope brings with it: who may change things may see them.
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

// May reports whether the identity has the permission where it acts: its role
// gives it, its token's scopes do not leave it out, and it is not power over more
// than the workspace that the token is kept to.
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
		return true // every user has an account, wherever it acts
	}
	return RoleHas(id.Role, p)
}

// beyond reports whether p is power over more than a workspace: with it, a token
// that is kept to one could make its way into the others.
func beyond(p sandbox.Permission) bool { return p == sandbox.Administer || p == sandbox.AccountWrite }

// scoped reports whether scopes let p through; none at all let everything through.
func scoped(scopes []sandbox.Permission, p sandbox.Permission) bool {
	return len(scopes) == 0 || slices.ContainsFunc(scopes, func(s sandbox.Permission) bool { return s == p || implied[s] == p })
}

// require returns code Forbidden, with what is missing, unless the identity may do p.
func (id Identity) require(p sandbox.Permission) error {
	switch {
	case id.May(p):
		return nil
	case !scoped(id.Scopes, p):
		return sandbox.Errorf(sandbox.Forbidden, "this token lacks the scope %s", p)
	case id.WorkspaceOnly && beyond(p):
		return sandbox.Errorf(sandbox.Forbidden, "this token is kept to its workspace, which does not allow %s", p)
	case p == sandbox.Administer:
		return sandbox.Errorf(sandbox.Forbidden, "only an administrator of this installation may do that")
	case id.Role == "":
		return sandbox.Errorf(sandbox.Forbidden, "you are in no workspace; make one or ask to be added to one")
	}
	return sandbox.Errorf(sandbox.Forbidden, "your role in this workspace is %s, which does not allow %s", id.Role, p)
}
