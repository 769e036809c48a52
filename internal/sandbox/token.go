package sandbox

import "time"

// TokenHash is the SHA-256 of a token's text; the text itself is never stored.
type TokenHash [32]byte

// Token is an API token as recorded.
type Token struct {
	ID          string // a UUID
	Hash        TokenHash
	Workspace   WorkspaceID // the workspace its requests act in
	User        UserID
	Description string
	CreatedAt   time.Time
	LastUsedAt  time.Time // zero until used; coarse, within a few minutes
	ExpiresAt   time.Time // zero means never
	RevokedAt   time.Time // zero while it is good
}
