package auth

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// Defaults makes what every installation has.
type Defaults interface {
	// EnsureDefaults returns the default workspace and its owner, making them when
	// they do not exist. Idempotent, also when called concurrently.
	EnsureDefaults(ctx context.Context) (sandbox.WorkspaceID, sandbox.UserID, error)
}

// Bootstrap makes sure that the default workspace, its owner and at least one
// token exist. When it made the token it returns its text, once, with created true;
// otherwise it changes nothing.
func (a *Authenticator) Bootstrap(ctx context.Context, defaults Defaults) (token string, created bool, err error) {
	ws, user, err := defaults.EnsureDefaults(ctx)
	if err != nil {
		return "", false, fmt.Errorf("make default workspace: %w", err)
	}
	id := Identity{User: user, Workspace: ws}
	tokens, err := a.ListTokens(ctx, id)
	if err != nil {
		return "", false, fmt.Errorf("list tokens of %s: %w", user, err)
	}
	if len(tokens) > 0 {
		return "", false, nil
	}
	token, _, err = a.CreateToken(ctx, id, TokenRequest{Description: "made at the first start"})
	if err != nil {
		return "", false, err
	}
	return token, true, nil
}
