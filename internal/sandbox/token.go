package sandbox

import "time"

// TokenHash is the SHA-256 of a token's text; the text itself is never stored.
type TokenHash [32]byte

// Token is an API token as recorded.
type Token struct {
	ID        string // a UUID
	Hash      TokenHash
	Workspace WorkspaceID // the workspace its requests act in
	User      UserID
	// WorkspaceOnly keeps its requests out of the user's other workspaces.
	WorkspaceOnly bool
	// Scopes narrow what it may do to these permissions; none means all that the user may.
	Scopes      []Permission
	Description string
	CreatedAt   time.Time
	LastUsedAt  time.Time // zero until used; coarse, within a few minutes
	ExpiresAt   time.Time // zero means never
	RevokedAt   time.Time // zero while it is good
}
