package main

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/client"
)

// dataImage has a Python that is started with the sandbox.
const dataImage = "modbox/data"

// startData creates a sandbox whose Python context has run code.
func (m *modbox) startData(ctx context.Context) (string, error) {
	sb, err := m.c.Sandboxes.Create(ctx, client.CreateOptions{Image: dataImage, Resources: client.Resources{CPU: "1"}, TTL: ttl, WaitUpTo: time.Minute})
	if err != nil {
		return "", err
	}
	if sb.State != client.Running {
		return sb.ID, fmt.Errorf("sandbox %s is %s: %v", sb.ID, sb.State, sb.Cause)
	}
	_, err = m.code(sb.ID)(ctx)
	return sb.ID, err
}

// code is `1+1` in the Python context of a sandbox until its result has arrived.
func (m *modbox) code(id string) op {
	return func(ctx context.Context) (time.Duration, error) {
		return timed(func() error {
			res, err := m.c.Sandboxes.RunCode(ctx, id, "1+1", client.CodeOptions{})
			if err == nil && (len(res.Results) != 1 || res.Results[0].Data["text/plain"] != "2") {
				err = fmt.Errorf("1+1 = %+v", res)
			}
			return err
		})
	}
}
