package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Images lists the images that sandboxes can be made from: the built-in images, the default first,
// and then the others, by name.
func (c *Client) Images() *List[Image] { return newList[Image](c, "/v1/images", nil) }

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

// CreateToken makes a token of the caller in the same workspace. Errors: Invalid, naming scopes;
// Forbidden for permissions that the caller's own token lacks.
func (c *Client) CreateToken(ctx context.Context, description string, o TokenOptions) (*NewToken, error) {
	body := wire.CreateToken{
		Description: description, ExpiresInSeconds: int64(seconds(o.Lifetime)), Scopes: o.Scopes, WorkspaceOnly: o.WorkspaceOnly,
	}
	t := new(NewToken)
	return result(t, c.call(ctx, request{method: http.MethodPost, path: "/v1/tokens", body: body}, t))
}

// Tokens lists the user's tokens in the workspace, newest first, without their secrets.
func (c *Client) Tokens() *List[Token] { return newList[Token](c, "/v1/tokens", nil) }

// RevokeToken ends a token; it stops working within seconds. Errors: NotFound.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/tokens/" + url.PathEscape(id), repeat: true}, nil)
}

// WhoAmI returns the identity of the token.
func (c *Client) WhoAmI(ctx context.Context) (*Identity, error) {
	id := new(Identity)
	return result(id, c.call(ctx, request{method: http.MethodGet, path: "/v1/whoami", repeat: true}, id))
}

// Version returns the server's version.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	v := new(Version)
	return result(v, c.call(ctx, request{method: http.MethodGet, path: "/v1/version", repeat: true}, v))
}
