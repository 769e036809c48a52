package accounts

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
)

// Users are the routes of the users of the installation.
type Users struct{ Accounts *auth.Accounts }

// UserRef is the path parameter that names a user.
type UserRef struct {
	User string `path:"user" maxLength:"254" doc:"The user: its id, name or e-mail address."`
}

type createUserInput struct{ Body wire.CreateUser }

type updateUserInput struct {
	UserRef
	Body wire.UpdateUser
}

// Register adds the routes.
func (h *Users) Register(m *route.Mux) {
	tags := []string{"users"}
	route.JSON(m, huma.Operation{
		OperationID: "create-user", Method: http.MethodPost, Path: "/v1/users", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a user", Description: "With a workspace of its own. For administrators, as all routes of users.",
	}, h.createUser)
	route.JSON(m, huma.Operation{
		OperationID: "list-users", Method: http.MethodGet, Path: "/v1/users", Tags: tags,
		Summary: "List users", Description: "Those of the installation, by name.",
	}, h.listUsers)
	route.JSON(m, huma.Operation{
		OperationID: "update-user", Method: http.MethodPatch, Path: "/v1/users/{user}", Tags: tags,
		Summary: "Change a user", Description: "Disable it, which ends its sessions and stops its tokens at once, or make it an administrator.",
	}, h.updateUser)
	route.JSON(m, huma.Operation{
		OperationID: "delete-user", Method: http.MethodDelete, Path: "/v1/users/{user}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a user", Description: "With its tokens, and with the workspaces that it alone is in.",
	}, h.deleteUser)
	route.JSON(m, huma.Operation{
		OperationID: "reset-password", Method: http.MethodPost, Path: "/v1/users/{user}/reset", Tags: tags,
		Summary: "Let a user choose a password", Description: "Answers a code for POST /v1/auth/accept. The old password works until then.",
	}, h.resetPassword)
}

func (h *Users) createUser(ctx context.Context, in *createUserInput) (*route.Body[wire.NewUser], error) {
	id, _ := auth.FromContext(ctx)
	u, code, err := h.Accounts.CreateUser(ctx, id, auth.NewUser{
		Name: in.Body.Name, Email: in.Body.Email, Password: in.Body.Password, Administrator: in.Body.Administrator,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.NewUser{User: user(u), Code: code}), nil
}

func (h *Users) listUsers(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.User]], error) {
	users, err := h.Accounts.Users(ctx, in.Request())
	return route.Paged(users, err, user)
}

func (h *Users) updateUser(ctx context.Context, in *updateUserInput) (*route.Body[wire.User], error) {
	u, err := h.Accounts.FindUser(ctx, in.User)
	if err == nil {
		u, err = h.Accounts.UpdateUser(ctx, u.ID, account.UserUpdate{Administrator: in.Body.Administrator, Disabled: in.Body.Disabled})
	}
	if err != nil {
		return nil, err
	}
	return route.Reply(user(u)), nil
}

func (h *Users) deleteUser(ctx context.Context, in *UserRef) (*struct{}, error) {
	u, err := h.Accounts.FindUser(ctx, in.User)
	if err != nil {
		return nil, err
	}
	return nil, h.Accounts.DeleteUser(ctx, u.ID)
}

func (h *Users) resetPassword(ctx context.Context, in *UserRef) (*route.Body[wire.Code], error) {
	id, _ := auth.FromContext(ctx)
	u, err := h.Accounts.FindUser(ctx, in.User)
	if err != nil {
		return nil, err
	}
	code, err := h.Accounts.ResetPassword(ctx, id, u.ID)
	return route.Reply(wire.Code{Code: code}), err
}

func user(u account.User) wire.User {
	return wire.User{
		ID: string(u.ID), Name: u.Name, Email: u.Email, Administrator: u.Administrator, WorkspaceID: string(u.Home),
		CreatedAt: u.CreatedAt, DisabledAt: route.Optional(u.DisabledAt),
	}
}
