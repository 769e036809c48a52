package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Images lists the images that sandboxes can be made from: the built-in ones, the
// default one first, and then the others, by name.
func (c *Client) Images() *List[Image] { return newList[Image](c, "/v1/images", nil) }

// TokenOptions narrow a token. The zero value is one that may do what its maker
// may, for ever.
type TokenOptions struct {
	// Lifetime is how long it works, in whole seconds; 0 is for ever.
	Lifetime time.Duration
	// Scopes are what it may do, e.g. "sandboxes:write"; docs/auth.md lists them. None
	// leaves it what its maker has.
	Scopes []string
	// WorkspaceOnly keeps it out of its user's other workspaces.
	WorkspaceOnly bool
}

// CreateToken makes a token that speaks for the caller in the same workspace.
// Errors: Invalid, naming scopes; Forbidden for what the caller's own token lacks.
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

// WhoAmI returns who the token speaks for.
func (c *Client) WhoAmI(ctx context.Context) (*Identity, error) {
	id := new(Identity)
	return result(id, c.call(ctx, request{method: http.MethodGet, path: "/v1/whoami", repeat: true}, id))
}

// Version returns the server's version.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	v := new(Version)
	return result(v, c.call(ctx, request{method: http.MethodGet, path: "/v1/version", repeat: true}, v))
}
