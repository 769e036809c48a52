package sandbox

import (
	"context"

	"github.com/modbox/modbox/client"
)

// Contexts are the contexts of a sandbox: interpreters that keep their state between runs of code.
type Contexts struct {
	client *client.Client
	id     string
}

// Create makes a context, beside the default context of its language. Errors: as for
// [client.Contexts.Create].
func (c *Contexts) Create(ctx context.Context, o client.ContextOptions) (*client.Context, error) {
	return c.client.Sandboxes.Contexts.Create(ctx, c.id, o)
}

// List lists the contexts, oldest first.
func (c *Contexts) List() *client.List[client.Context] {
	return c.client.Sandboxes.Contexts.List(c.id)
}

// Interrupt interrupts the code that runs in a context, named by its id.
func (c *Contexts) Interrupt(ctx context.Context, id string) error {
	return c.client.Sandboxes.Contexts.Interrupt(ctx, c.id, id)
}

// Restart starts the interpreter of a context again, without its state.
func (c *Contexts) Restart(ctx context.Context, id string) (*client.Context, error) {
	return c.client.Sandboxes.Contexts.Restart(ctx, c.id, id)
}

// Delete ends a context.
func (c *Contexts) Delete(ctx context.Context, id string) error {
	return c.client.Sandboxes.Contexts.Delete(ctx, c.id, id)
}
