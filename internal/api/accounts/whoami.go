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

// Whoami is the route that identifies the caller.
type Whoami struct{ Accounts *auth.Accounts }

// Register adds the route.
func (h *Whoami) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "whoami", Method: http.MethodGet, Path: "/v1/whoami", Tags: []string{"account"},
		Summary: "Identify the caller", Description: "The user, the workspace of the request, and the caller's permissions there.",
	}, h.get)
}

func (h *Whoami) get(ctx context.Context, _ *struct{}) (*route.Body[wire.Whoami], error) {
	id, _ := auth.FromContext(ctx)
	u, err := h.Accounts.FindUser(ctx, string(id.User))
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
	return route.Reply(out), nil
}
