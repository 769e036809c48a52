package e2e_test

import (
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/client"
)

func (a arguments) codeOptions() client.CodeOptions {
	return client.CodeOptions{Language: a.Language, ContextID: a.ContextID, Timeout: time.Duration(a.TimeoutSeconds) * time.Second}
}

// codeCalls are the calls about code and contexts.
var codeCalls = map[string]call{
	"sandboxes.run_code": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.RunCode(ctx, a.Ref, a.Code, a.codeOptions())
	},
	"sandboxes.run_code_stream": runCodeStream,
	"sandboxes.contexts.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Contexts.Create(ctx, a.Ref, client.ContextOptions{Language: a.Language, Cwd: a.Cwd, Env: a.Env})
	},
	"sandboxes.contexts.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Contexts.List(a.Ref).Collect(ctx)
	},
	"sandboxes.contexts.interrupt": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Sandboxes.Contexts.Interrupt(ctx, a.Ref, a.Context)
	},
	"sandboxes.contexts.restart": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Contexts.Restart(ctx, a.Ref, a.Context)
	},
	"sandboxes.contexts.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Sandboxes.Contexts.Delete(ctx, a.Ref, a.Context)
	},
}

// runCodeStream puts the events of code together.
func runCodeStream(ctx context.Context, c *client.Client, a arguments) (any, error) {
	var types []string
	output, data, status := map[string]string{}, []any{}, ""
	err := c.Sandboxes.RunCodeStream(ctx, a.Ref, a.Code, a.codeOptions(), func(ev client.CodeEvent) error {
		if !slices.Contains(types, ev.Type) {
			types = append(types, ev.Type)
		}
		output[ev.Type] += ev.Text
		if ev.Result != nil {
			data = append(data, ev.Result.Data["application/json"])
		}
		status = ev.Status
		return nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"types": types, "stdout": output["stdout"], "stderr": output["stderr"], "data": data, "status": status}, nil
}
