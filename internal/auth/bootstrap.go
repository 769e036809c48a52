package auth

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// Defaults creates the default workspace and its owner.
type Defaults interface {
	// EnsureDefaults returns the default workspace and its owner, making them when
	// they do not exist. Idempotent, also when called concurrently.
	EnsureDefaults(ctx context.Context) (sandbox.WorkspaceID, sandbox.UserID, error)
}

// Bootstrap makes sure that the default workspace and its owner exist. At the first start it also
// creates the owner's first token and returns its text with created true. It does so only once: if
// an operator revokes that token, a later start does not create another.
func (a *Authenticator) Bootstrap(ctx context.Context, defaults Defaults) (token string, created bool, err error) {
	ws, user, err := defaults.EnsureDefaults(ctx)
	if err != nil {
		return "", false, fmt.Errorf("make default workspace: %w", err)
	}
	id := Identity{User: user, Workspace: ws}
	had, err := a.store.Tokens.HadTokens(ctx, user)
	if err != nil {
		return "", false, fmt.Errorf("look for tokens of %s: %w", user, err)
	}
	if had {
		return "", false, nil
	}
	token, _, err = a.CreateToken(ctx, id, TokenRequest{Description: "made at the first start"})
	if err != nil {
		return "", false, err
	}
	return token, true, nil
}
