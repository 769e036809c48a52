package account

import "slices"

// Role gives a member permissions in a workspace.
type Role string

// The roles, from owners, who may do everything, to viewers, who may only look.
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

// Permission allows a caller an action. A narrowed token lists its permissions as scopes.
type Permission string

// The permissions. Package auth says which role has which.
const (
	SandboxesRead    Permission = "sandboxes:read"
	SandboxesWrite   Permission = "sandboxes:write"
	ImagesRead       Permission = "images:read" // and registries
	ImagesWrite      Permission = "images:write"
	WorkspacesRead   Permission = "workspaces:read" // and members
	WorkspacesWrite  Permission = "workspaces:write"
	WorkspacesDelete Permission = "workspaces:delete"
	MembersWrite     Permission = "members:write"
	TokensRead       Permission = "tokens:read" // the caller's
	TokensWrite      Permission = "tokens:write"
	AuditRead        Permission = "audit:read"    // the audit log of the workspace
	WebhooksRead     Permission = "webhooks:read" // and deliveries
	WebhooksWrite    Permission = "webhooks:write"
	AccountWrite     Permission = "account:write" // the caller's password and sessions, new workspaces
	Administer       Permission = "admin"         // the installation: its users
)

// Permissions lists every permission, and so every scope of tokens.
var Permissions = []Permission{
	SandboxesRead, SandboxesWrite, ImagesRead, ImagesWrite, WorkspacesRead, WorkspacesWrite, WorkspacesDelete,
	MembersWrite, TokensRead, TokensWrite, AuditRead, WebhooksRead, WebhooksWrite, AccountWrite, Administer,
}

// Valid reports whether p is one of the permissions.
func (p Permission) Valid() bool { return slices.Contains(Permissions, p) }
