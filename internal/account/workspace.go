package account

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Workspace is a tenant.
type Workspace struct {
	ID          sandbox.WorkspaceID
	Name        string
	Slug        string // its name in references; unique
	Description string
	CreatedBy   sandbox.UserID
	CreatedAt   time.Time
	UpdatedAt   time.Time
	// URLAccess names the least credential for the management routes on the URLs of its
	// sandboxes; "" leaves it to the server.
	URLAccess sandbox.URLAccess
	// CodeScan says whether code is scanned before it runs.
	CodeScan CodeScan
	// CodeScanRules are the rules that count; none means all.
	CodeScanRules ScanRules
	// AuditOutput is whether the audit log has the outputs of its commands.
	AuditOutput bool
	// Role is the role of the user for whom the workspace was looked up; "" without a user.
	Role Role
}

// WorkspaceUpdate is a change of a workspace; nil leaves a field as it is.
type WorkspaceUpdate struct {
	Name, Slug, Description *string
	URLAccess               *sandbox.URLAccess
	CodeScan                *CodeScan
	CodeScanRules           *ScanRules // an empty list is all rules
	AuditOutput             *bool
	At                      time.Time
}

// Member is a user of a workspace.
type Member struct {
	User      sandbox.UserID
	Name      string
	Email     string
	Role      Role
	CreatedAt time.Time
}

// Membership is a user's place in a workspace.
type Membership struct {
	User      sandbox.UserID
	Workspace sandbox.WorkspaceID
	Role      Role
	// Administrator is whether the user administers the installation.
	Administrator bool
}
