package accounts

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
)

// Tokens are the routes of API tokens.
type Tokens struct{ Service *auth.Authenticator }

type tokenInput struct {
	ID string `path:"token" maxLength:"64" doc:"The token's id."`
}

type createTokenInput struct{ Body wire.CreateToken }

// Register adds the routes.
func (h *Tokens) Register(m *route.Mux) {
	tags := []string{"account"}
	route.JSON(m, huma.Operation{
		OperationID: "create-token", Method: http.MethodPost, Path: "/v1/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make an API token", Description: "For the caller, in the workspace of the request. Its text is shown only now.",
	}, h.createToken)
	route.JSON(m, huma.Operation{
		OperationID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens", Tags: tags,
		Summary: "List API tokens", Description: "The caller's, without those revoked, newest first.",
	}, h.listTokens)
	route.JSON(m, huma.Operation{
		OperationID: "revoke-token", Method: http.MethodDelete, Path: "/v1/tokens/{token}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Revoke an API token", Description: "It stops working at once.",
	}, h.revokeToken)
}

func (h *Tokens) createToken(ctx context.Context, in *createTokenInput) (*route.Body[wire.NewToken], error) {
	id, _ := auth.FromContext(ctx)
	secret, t, err := h.Service.CreateToken(ctx, id, auth.TokenRequest{
		Description: in.Body.Description, Lifetime: time.Duration(in.Body.ExpiresInSeconds) * time.Second,
		Scopes: texts[account.Permission](in.Body.Scopes), WorkspaceOnly: in.Body.WorkspaceOnly,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.NewToken{Token: token(t), Secret: secret}), nil
}

func (h *Tokens) listTokens(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Token]], error) {
	id, _ := auth.FromContext(ctx)
	tokens, err := h.Service.ListTokens(ctx, id)
	return route.PagedOf(*in, tokens, err, page.Order[account.Token]{
		Name: "tokens", Key: func(t account.Token) string { return page.ByTime(t.CreatedAt, t.ID) }, Descending: true,
	}, token)
}

func (h *Tokens) revokeToken(ctx context.Context, in *tokenInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, h.Service.RevokeToken(ctx, id, in.ID)
}

func token(t account.Token) wire.Token {
	return wire.Token{
		ID: t.ID, Description: t.Description, WorkspaceID: string(t.Workspace), WorkspaceOnly: t.WorkspaceOnly, Scopes: texts[string](t.Scopes),
		CreatedAt: t.CreatedAt, LastUsedAt: route.Optional(t.LastUsedAt), ExpiresAt: route.Optional(t.ExpiresAt),
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
