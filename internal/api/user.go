package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
)

// UserRef is the path parameter that names a user.
type UserRef struct {
	User string `path:"user" maxLength:"254" doc:"The user: its id, name or e-mail address."`
}

type createUserInput struct{ Body wire.CreateUser }

type updateUserInput struct {
	UserRef
	Body wire.UpdateUser
}

func (s *Server) registerUsers(a huma.API) {
	tags := []string{"users"}
	route(a, huma.Operation{
		OperationID: "create-user", Method: http.MethodPost, Path: "/v1/users", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a user", Description: "With a workspace of its own. For administrators, as all routes of users.",
	}, s.createUser)
	route(a, huma.Operation{
		OperationID: "list-users", Method: http.MethodGet, Path: "/v1/users", Tags: tags,
		Summary: "List users", Description: "Those of the installation, by name.",
	}, s.listUsers)
	route(a, huma.Operation{
		OperationID: "update-user", Method: http.MethodPatch, Path: "/v1/users/{user}", Tags: tags,
		Summary: "Change a user", Description: "Disable it, which ends its sessions and stops its tokens at once, or make it an administrator.",
	}, s.updateUser)
	route(a, huma.Operation{
		OperationID: "delete-user", Method: http.MethodDelete, Path: "/v1/users/{user}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a user", Description: "With its tokens, and with the workspaces that it alone is in.",
	}, s.deleteUser)
	route(a, huma.Operation{
		OperationID: "reset-password", Method: http.MethodPost, Path: "/v1/users/{user}/reset", Tags: tags,
		Summary: "Let a user choose a password", Description: "Answers a code for POST /v1/auth/accept. The old password works until then.",
	}, s.resetPassword)
}

func (s *Server) createUser(ctx context.Context, in *createUserInput) (*body[wire.NewUser], error) {
	id, _ := auth.FromContext(ctx)
	u, code, err := s.accounts.CreateUser(ctx, id, auth.NewUser{
		Name: in.Body.Name, Email: in.Body.Email, Password: in.Body.Password, Administrator: in.Body.Administrator,
	})
	if err != nil {
		return nil, err
	}
	return reply(wire.NewUser{User: user(u), Code: code}), nil
}

func (s *Server) listUsers(ctx context.Context, in *PageInput) (*body[wire.Page[wire.User]], error) {
	users, err := s.accounts.Users(ctx, in.request())
	return paged(users, err, user)
}

func (s *Server) updateUser(ctx context.Context, in *updateUserInput) (*body[wire.User], error) {
	u, err := s.accounts.FindUser(ctx, in.User)
	if err == nil {
		u, err = s.accounts.UpdateUser(ctx, u.ID, account.UserUpdate{Administrator: in.Body.Administrator, Disabled: in.Body.Disabled})
	}
	if err != nil {
		return nil, err
	}
	return reply(user(u)), nil
}

func (s *Server) deleteUser(ctx context.Context, in *UserRef) (*struct{}, error) {
	u, err := s.accounts.FindUser(ctx, in.User)
	if err != nil {
		return nil, err
	}
	return nil, s.accounts.DeleteUser(ctx, u.ID)
}

func (s *Server) resetPassword(ctx context.Context, in *UserRef) (*body[wire.Code], error) {
	id, _ := auth.FromContext(ctx)
	u, err := s.accounts.FindUser(ctx, in.User)
	if err != nil {
		return nil, err
	}
	code, err := s.accounts.ResetPassword(ctx, id, u.ID)
	return reply(wire.Code{Code: code}), err
}

func user(u account.User) wire.User {
	return wire.User{
		ID: string(u.ID), Name: u.Name, Email: u.Email, Administrator: u.Administrator, WorkspaceID: string(u.Home),
		CreatedAt: u.CreatedAt, DisabledAt: optional(u.DisabledAt),
	}
}
