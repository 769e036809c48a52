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
	// HadTokens reports whether the user has or had an API token, in whichever workspace.
	HadTokens(ctx context.Context, user sandbox.UserID) (bool, error)
}

// Bootstrap makes sure that the default workspace and its owner exist, and makes the
// owner's first token: at the first start only, so that a token that was revoked has no
// successor that nobody asked for. When it made the token it returns its text, once, with
// created true; otherwise it changes nothing.
func (a *Authenticator) Bootstrap(ctx context.Context, defaults Defaults) (token string, created bool, err error) {
	ws, user, err := defaults.EnsureDefaults(ctx)
	if err != nil {
		return "", false, fmt.Errorf("make default workspace: %w", err)
	}
	id := Identity{User: user, Workspace: ws}
	had, err := defaults.HadTokens(ctx, user)
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
