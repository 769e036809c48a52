package bench

import (
	"cmp"
	"context"
	"errors"
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
		took, _, err := createAndCall(ctx, m, m.unasked(client.Resources{CPU: "1"}), first)
		return took, err
	}
}

// fromTemplate is the create of a sandbox of the data image that the server restores from a memory template, and its first call.
func fromTemplate(m *Server, first func(id string) Op) Op {
	limits := client.Resources{CPU: "1", Memory: "1500Mi"}
	return func(ctx context.Context) (time.Duration, error) {
		for range 30 { // it makes one after some creates
			other, err := m.createData(ctx, limits) // which takes the box that the pool has
			if err != nil {
				return 0, err
			}
			took, restored, err := createAndCall(ctx, m, limits, first)
			if err = cmp.Or(err, m.Remove(ctx, other)); err != nil || restored {
				return took, err
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return 0, errors.New("the server restores no sandbox from a memory template")
	}
}

// createAndCall creates a sandbox of the data image, makes its first call, and removes it. restored reports whether it came from a
// memory template.
func createAndCall(ctx context.Context, m *Server, limits client.Resources, first func(id string) Op) (took time.Duration, restored bool, err error) {
	var id string
	took, err = Timed(func() (err error) {
		if id, err = m.createData(ctx, limits); err != nil {
			return err
		}
		_, err = first(id)(ctx)
		return err
	})
	if id == "" {
		return took, false, err
	}
	for ev, evErr := range m.c.Sandboxes.Events(id, client.EventsOptions{}).All(ctx) {
		if evErr != nil {
			err = cmp.Or(err, evErr)
			break
		}
		restored = restored || ev.Data["from_template"] == "true"
	}
	return took, restored, cmp.Or(err, m.Remove(ctx, id))
}

// Code is `1+1` in the Python context of a sandbox until its result has arrived.
func (m *Server) Code(id string) Op { return evaluate(m, id, "1+1", "2") }

// pandas is an import of pandas in the Python context of a sandbox until a result has arrived.
func pandas(m *Server, id string) Op {
	return evaluate(m, id, "import pandas\npandas.Series([1, 1]).sum().item()", "2")
}

func evaluate(m *Server, id, code, want string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error {
			res, err := m.c.Sandboxes.RunCode(ctx, id, code, client.CodeOptions{})
			if err == nil && (len(res.Results) != 1 || res.Results[0].Data["text/plain"] != want) {
				err = fmt.Errorf("%s = %+v", code, res)
			}
			return err
		})
	}
}
