package sandbox

import "slices"

// Role is what a member may do in a workspace.
type Role string

// The roles, from the one that may do everything down to the one that may only look.
const (
	RoleOwner  Role = "owner"
	RoleAdmin  Role = "admin"
	RoleMember Role = "member"
	RoleViewer Role = "viewer"
)

// Roles lists every role, the most powerful first.
var Roles = []Role{RoleOwner, RoleAdmin, RoleMember, RoleViewer}

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(Roles, r) }

// Permission is something that a caller may be allowed to do. A token that is
// narrowed names those it keeps, as its scopes.
type Permission string

// The permissions. Package auth says which role has which.
const (
	SandboxesRead    Permission = "sandboxes:read"
	SandboxesWrite   Permission = "sandboxes:write"
	ImagesRead       Permission = "images:read" // and registries
	ImagesWrite      Permission = "images:write"
	WorkspacesRead   Permission = "workspaces:read" // with members
	WorkspacesWrite  Permission = "workspaces:write"
	WorkspacesDelete Permission = "workspaces:delete"
	MembersWrite     Permission = "members:write"
	TokensRead       Permission = "tokens:read" // one's own
	TokensWrite      Permission = "tokens:write"
	AuditRead        Permission = "audit:read"    // what was done in the workspace
	AccountWrite     Permission = "account:write" // one's own password and sessions, new workspaces
	Administer       Permission = "admin"         // the installation: its users
)

// Permissions lists every permission; those are also the scopes of tokens.
var Permissions = []Permission{
	SandboxesRead, SandboxesWrite, ImagesRead, ImagesWrite, WorkspacesRead, WorkspacesWrite, WorkspacesDelete,
	MembersWrite, TokensRead, TokensWrite, AuditRead, AccountWrite, Administer,
}

// Valid reports whether p is one of the permissions.
func (p Permission) Valid() bool { return slices.Contains(Permissions, p) }

// Membership is a user's place in a workspace.
type Membership struct {
	User      UserID
	Workspace WorkspaceID
	Role      Role
	// Administrator is whether the user looks after the installation.
	Administrator bool
}
