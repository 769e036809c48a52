package e2e_test

import (
	"context"
	"time"

	"github.com/modbox/modbox/client"
)

// portCalls are the calls of published ports and of the access to sandboxes' URLs.
var portCalls = map[string]call{
	"sandboxes.ports.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Ports.List(a.Ref).Collect(ctx)
	},
	"sandboxes.ports.publish": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Ports.Publish(ctx, a.Ref, a.Port, a.Access)
	},
	"sandboxes.ports.unpublish": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Sandboxes.Ports.Unpublish(ctx, a.Ref, a.Port)
	},
	"sandboxes.ports.rotate": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Ports.Rotate(ctx, a.Ref, a.Port)
	},
	"sandboxes.ports.create_link": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Ports.CreateLink(ctx, a.Ref, a.Port, time.Duration(a.ExpiresSeconds)*time.Second)
	},
	"workspaces.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Workspaces.Update(ctx, a.Workspace, client.WorkspaceOptions{URLAccess: a.URLAccess})
	},
}
