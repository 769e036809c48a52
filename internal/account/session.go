package account

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TokenHash is the SHA-256 of a token's text; the text itself is never stored.
type TokenHash [32]byte

// Token is an API token as recorded.
type Token struct {
	ID        string // a UUID
	Hash      TokenHash
	Workspace sandbox.WorkspaceID // the workspace in which its requests act
	User      sandbox.UserID
	// WorkspaceOnly keeps its requests out of the user's other workspaces.
	WorkspaceOnly bool
	// Scopes narrow the token to these permissions; none means all permissions of the user.
	Scopes      []Permission
	Description string
	CreatedAt   time.Time
	LastUsedAt  time.Time // zero until used; accurate to a few minutes
	ExpiresAt   time.Time // zero means never
	RevokedAt   time.Time // zero while the token is valid
}

// Session is a sign-in, with its present pair of tokens.
type Session struct {
	ID               string // a UUID
	User             sandbox.UserID
	Home             sandbox.WorkspaceID // the user's
	Access           TokenHash
	AccessExpiresAt  time.Time
	Refresh          TokenHash
	RefreshExpiresAt time.Time
	RefreshTime      time.Duration // lifetime of each refresh token
	EndsAt           time.Time     // when the session ends in any case; zero is never
	Method           string        // of the sign-in: password, invitation, or the provider's name
	Address          string
	CreatedAt        time.Time
	RefreshedAt      time.Time
	Used             bool // whether the present tokens were used
}

// RefreshGrace is the time during which a refresh token still works after its use, unless the client
// has used the new tokens: the client may not have received them.
const RefreshGrace = 5 * time.Minute

// RefreshExpiry returns when a refresh token expires that the session gets at the given time.
func (s Session) RefreshExpiry(at time.Time) time.Time {
	expires := at.Add(s.RefreshTime)
	if !s.EndsAt.IsZero() && s.EndsAt.Before(expires) {
		return s.EndsAt
	}
	return expires
}
