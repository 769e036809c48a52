package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/runcode"
	"github.com/modbox/modbox/internal/code"
)

// registerCode adds the routes that run code in contexts, and returns the function of the route
// that streams.
func registerCode(a huma.API, s *Server) func(w http.ResponseWriter, r *http.Request) error {
	c := &runcode.Routes{
		Code: code.New(s.guest), Caller: caller, Ping: s.cfg.Ping,
		Timeout: func(ctx context.Context, ref string, requested time.Duration) (time.Duration, error) {
			return timeout(ctx, s, ref, requested)
		},
	}
	route(a, runcode.RunOperation, c.Run)
	route(a, runcode.CreateOperation, c.Create)
	route(a, runcode.ListOperation, c.List)
	route(a, runcode.DeleteOperation, c.Delete)
	route(a, runcode.InterruptOperation, c.Interrupt)
	route(a, runcode.RestartOperation, c.Restart)
	return func(w http.ResponseWriter, r *http.Request) error {
		in, err := decode[wire.RunCode](w, r, runcode.BodyMax)
		if err != nil {
			return err
		}
		return c.Stream(w, r, &in)
	}
}
