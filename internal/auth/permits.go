package auth

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

// Permits returns the user of a token that came with a request, if that user has permission p in
// the workspace. It serves requests that do not go through a [Mux].
//
// Errors: Unauthenticated without a valid token; Forbidden when the token's user is not a member of
// the workspace or lacks p; QuotaExceeded as in [Authenticator.Authenticate].
func (a *Authenticator) Permits(r *http.Request, token string, ws sandbox.WorkspaceID, p account.Permission) (Identity, error) {
	id, err := a.authenticateToken(r, token, string(ws))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		err = sandbox.Errorf(sandbox.Forbidden, "the token does not reach this sandbox")
	}
	if err == nil {
		err = id.require(p)
	}
	return id, err
}

// StillPermits returns nil when a user has permission p in the workspace now: by the API token with
// that ID, or for token "" by itself. It checks objects that must end with the rights of the token
// that made them, such as signed links.
//
// Errors: Unauthenticated when the token has expired or was revoked, or the user is disabled or has
// left the workspace; Forbidden when the user or token lacks p now.
func (a *Authenticator) StillPermits(ctx context.Context, user sandbox.UserID, token string, ws sandbox.WorkspaceID, p account.Permission) error {
	ended := sandbox.Errorf(sandbox.Unauthenticated, "the token is expired or revoked, or its user cannot use this workspace any more")
	id := Identity{User: user, TokenID: token}
	if token != "" {
		t, err := a.tokenByID(ctx, token)
		switch {
		case sandbox.CodeOf(err) == sandbox.NotFound:
			return ended
		case err != nil:
			return fmt.Errorf("look up token %s: %w", token, err)
		case t.User != user || !good(t, time.Now()) || t.WorkspaceOnly && t.Workspace != ws:
			return ended
		}
		id.Scopes, id.WorkspaceOnly = t.Scopes, t.WorkspaceOnly
	}
	m, err := a.membership(ctx, user, ws)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return ended
	case err != nil:
		return fmt.Errorf("look up member %s of workspace %s: %w", user, ws, err)
	}
	id.Workspace, id.Role, id.Administrator = m.Workspace, m.Role, m.Administrator
	return id.require(p)
}

// tokenByID looks up a token, at most once every [CacheTime]. Errors: NotFound.
func (a *Authenticator) tokenByID(ctx context.Context, id string) (account.Token, error) {
	if t, ok := a.byID.Get(id); ok {
		return t, nil
	}
	since := a.changed()
	t, err := a.store.Tokens.TokenByID(ctx, id)
	if err == nil {
		a.keep(since, func() { a.byID.Set(id, t) })
	}
	return t, err
}
