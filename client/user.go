package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// Users has the calls for the users of the server, for its administrators.
type Users struct{ *transport }

// User is a person who signs in.
type User = wire.User

// NewUser is a new user.
type NewUser = wire.NewUser

// UserOptions describe a user to create.
type UserOptions = wire.CreateUser

// UserChange changes a user; nil fields stay.
type UserChange = wire.UpdateUser

func userPath(ref, rest string) string { return "/v1/users/" + url.PathEscape(ref) + rest }

// Create makes a user.
func (c *Users) Create(ctx context.Context, o UserOptions) (*NewUser, error) {
	return fetch[NewUser](ctx, c.transport, request{method: http.MethodPost, path: "/v1/users", body: o})
}

// List lists the users of the server, by name.
func (c *Users) List() *List[User] { return newList[User](c.transport, "/v1/users", nil) }

// Update changes the user with that id, name or e-mail address. Errors:
// NotFound; Conflict when no administrator would be left.
func (c *Users) Update(ctx context.Context, ref string, change UserChange) (*User, error) {
	return fetch[User](ctx, c.transport, request{method: http.MethodPatch, path: userPath(ref, ""), body: change, repeat: true})
}

// Delete deletes a user with its tokens, and the workspaces without another member. Errors:
// NotFound; Conflict.
func (c *Users) Delete(ctx context.Context, ref string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: userPath(ref, "")}, nil)
}

// ResetPassword returns a code by which a user chooses a new password. Errors: NotFound.
func (c *Users) ResetPassword(ctx context.Context, ref string) (string, error) {
	var code wire.Code
	err := c.call(ctx, request{method: http.MethodPost, path: userPath(ref, "/reset")}, &code)
	return code.Code, err
}
