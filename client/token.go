package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Tokens has the calls for the API tokens of the client's user.
type Tokens struct{ *transport }

// TokenOptions restrict a token. A token with the zero value has all permissions of its maker and
// never expires.
type TokenOptions struct {
	// Lifetime is the time after which it expires, in whole seconds; 0 is never.
	Lifetime time.Duration
	// Scopes are its permissions, e.g. "sandboxes:write"; docs/auth.md lists them. None gives it all
	// permissions of its maker.
	Scopes []string
	// WorkspaceOnly restricts it to a single workspace of its user.
	WorkspaceOnly bool
}

// Create makes a token of the caller in the same workspace. Errors: Invalid, naming scopes;
// Forbidden for permissions that the caller's own token lacks.
func (c *Tokens) Create(ctx context.Context, description string, o TokenOptions) (*NewToken, error) {
	body := wire.CreateToken{
		Description: description, ExpiresInSeconds: int64(seconds(o.Lifetime)), Scopes: o.Scopes, WorkspaceOnly: o.WorkspaceOnly,
	}
	return fetch[NewToken](ctx, c.transport, request{method: http.MethodPost, path: "/v1/tokens", body: body})
}

// List lists the user's tokens in the workspace, newest first, without their secrets.
func (c *Tokens) List() *List[Token] { return newList[Token](c.transport, "/v1/tokens", nil) }

// Revoke ends a token; it stops working within seconds. Errors: NotFound.
func (c *Tokens) Revoke(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/tokens/" + url.PathEscape(id), repeat: true}, nil)
}
