package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/environment"
)

// Environments are the routes of the environment variables of sandboxes.
type Environments struct{ Service *environment.Service }

type updateEnvInput struct {
	route.SandboxRef
	Body wire.UpdateEnv
}

// Register adds the routes.
func (h *Environments) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "update-env", Method: http.MethodPatch, Path: "/v1/sandboxes/{sandbox}/env", Tags: []string{"executions"},
		Summary: "Set and delete environment variables", Description: "For the commands that start afterwards. The body is an object of names and values; null deletes. Answers all variables that callers have set: this is the only call that shows their values.",
	}, h.update)
}

func (h *Environments) update(ctx context.Context, in *updateEnvInput) (*route.Body[wire.Env], error) {
	env, err := h.Service.Update(ctx, route.Caller(ctx), in.Ref, in.Body)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.Env{Env: env}), nil
}
