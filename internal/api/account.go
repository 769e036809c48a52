package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
)

type tokenInput struct {
	ID string `path:"token" maxLength:"64" doc:"The token's id."`
}

type createTokenInput struct{ Body wire.CreateToken }

func (s *Server) registerAccount(a huma.API) {
	tags := []string{"account"}
	route(a, huma.Operation{
		OperationID: "create-token", Method: http.MethodPost, Path: "/v1/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make an API token", Description: "For the caller, in the workspace of the request. Its text is shown only now.",
	}, s.createToken)
	route(a, huma.Operation{
		OperationID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens", Tags: tags,
		Summary: "List API tokens", Description: "The caller's, without those revoked, newest first.",
	}, s.listTokens)
	route(a, huma.Operation{
		OperationID: "revoke-token", Method: http.MethodDelete, Path: "/v1/tokens/{token}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Revoke an API token", Description: "It stops working at once.",
	}, s.revokeToken)
	route(a, huma.Operation{
		OperationID: "whoami", Method: http.MethodGet, Path: "/v1/whoami", Tags: tags,
		Summary: "Identify the caller", Description: "The user, the workspace of the request, and the caller's permissions there.",
	}, s.whoami)
	route(a, huma.Operation{
		OperationID: "get-version", Method: http.MethodGet, Path: "/v1/version", Tags: tags,
		Summary: "Describe the server", Description: "Its version, and the driver of its sandboxes.",
	}, s.getVersion)
}

func (s *Server) createToken(ctx context.Context, in *createTokenInput) (*body[wire.NewToken], error) {
	id, _ := auth.FromContext(ctx)
	secret, t, err := s.auth.CreateToken(ctx, id, auth.TokenRequest{
		Description: in.Body.Description, Lifetime: time.Duration(in.Body.ExpiresInSeconds) * time.Second,
		Scopes: texts[account.Permission](in.Body.Scopes), WorkspaceOnly: in.Body.WorkspaceOnly,
	})
	if err != nil {
		return nil, err
	}
	return reply(wire.NewToken{Token: token(t), Secret: secret}), nil
}

func (s *Server) listTokens(ctx context.Context, in *PageInput) (*body[wire.Page[wire.Token]], error) {
	id, _ := auth.FromContext(ctx)
	tokens, err := s.auth.ListTokens(ctx, id)
	return pagedOf(*in, tokens, err, page.Order[account.Token]{
		Name: "tokens", Key: func(t account.Token) string { return page.ByTime(t.CreatedAt, t.ID) }, Descending: true,
	}, token)
}

func (s *Server) revokeToken(ctx context.Context, in *tokenInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, s.auth.RevokeToken(ctx, id, in.ID)
}

func (s *Server) whoami(ctx context.Context, _ *struct{}) (*body[wire.Whoami], error) {
	id, _ := auth.FromContext(ctx)
	u, err := s.accounts.FindUser(ctx, string(id.User))
	if err != nil {
		return nil, err
	}
	out := wire.Whoami{
		UserID: string(id.User), Name: u.Name, Email: u.Email, WorkspaceID: string(id.Workspace), TokenID: id.TokenID,
		Role: string(id.Role), Administrator: id.Administrator, Permissions: []string{},
	}
	for _, p := range account.Permissions {
		if id.May(p) {
			out.Permissions = append(out.Permissions, string(p))
		}
	}
	return reply(out), nil
}

func (s *Server) getVersion(context.Context, *struct{}) (*body[wire.Version], error) {
	return reply(wire.Version{Version: s.cfg.Version, Driver: s.deps.Driver}), nil
}

func token(t account.Token) wire.Token {
	return wire.Token{
		ID: t.ID, Description: t.Description, WorkspaceID: string(t.Workspace), WorkspaceOnly: t.WorkspaceOnly, Scopes: texts[string](t.Scopes),
		CreatedAt: t.CreatedAt, LastUsedAt: optional(t.LastUsedAt), ExpiresAt: optional(t.ExpiresAt),
	}
}

// texts converts strings of one type to another; never nil.
func texts[To, From ~string](in []From) []To {
	out := make([]To, len(in))
	for i, s := range in {
		out[i] = To(s)
	}
	return out
}
