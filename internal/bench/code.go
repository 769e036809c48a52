package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/client"
)

// dataImage has a Python that is started with the sandbox.
const dataImage = "modbox/data"

// StartData creates a sandbox whose Python context has run code.
func (m *Server) StartData(ctx context.Context) (string, error) {
	id, err := m.createData(ctx, client.Resources{CPU: "1"})
	if err == nil {
		_, err = m.Code(id)(ctx)
	}
	return id, err
}

// createData creates a sandbox of the data image and returns when it runs.
func (m *Server) createData(ctx context.Context, limits client.Resources) (string, error) {
	sb, err := m.c.Sandboxes.Create(ctx, client.CreateOptions{Image: dataImage, Resources: limits, TTL: ttl, WaitUpTo: time.Minute})
	if err != nil {
		return "", err
	}
	if sb.State != client.Running {
		return sb.ID, fmt.Errorf("sandbox %s is %s: %v", sb.ID, sb.State, sb.Cause)
	}
	return sb.ID, nil
}

// AfterCreate is the create of a sandbox of the data image that the server does not have ready, and
// its first call.
func (m *Server) AfterCreate(first func(id string) Op) Op {
	return func(ctx context.Context) (time.Duration, error) {
		var id string
		took, err := Timed(func() (err error) {
			if id, err = m.createData(ctx, m.unasked(client.Resources{CPU: "1"})); err != nil {
				return err
			}
			_, err = first(id)(ctx)
			return err
		})
		if id != "" {
			if rmErr := m.Remove(ctx, id); err == nil {
				err = rmErr
			}
		}
		return took, err
	}
}

// Code is `1+1` in the Python context of a sandbox until its result has arrived.
func (m *Server) Code(id string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error {
			res, err := m.c.Sandboxes.RunCode(ctx, id, "1+1", client.CodeOptions{})
			if err == nil && (len(res.Results) != 1 || res.Results[0].Data["text/plain"] != "2") {
				err = fmt.Errorf("1+1 = %+v", res)
			}
			return err
		})
	}
}
