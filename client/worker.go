package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// Workers has the calls for the workers of the server, for its administrators. A server without workers
// has an empty list.
type Workers struct{ *transport }

// Worker is a machine on which sandboxes run.
type Worker = wire.Worker

// WorkerChanges are changes of a worker; nil leaves a setting as it is.
type WorkerChanges = wire.UpdateWorker

// Host is the machine of the server: its capacity, pool, images, and how long operations take.
type Host = wire.Host

func workerPath(ref string) string { return "/v1/workers/" + url.PathEscape(ref) }

// List lists the workers, the first that joined first.
func (c *Workers) List() *List[Worker] { return newList[Worker](c.transport, "/v1/workers", nil) }

// Get returns the worker with that id or name. Errors: NotFound.
func (c *Workers) Get(ctx context.Context, ref string) (*Worker, error) {
	return fetch[Worker](ctx, c.transport, request{method: http.MethodGet, path: workerPath(ref), repeat: true})
}

// Update changes a worker. Errors: NotFound.
func (c *Workers) Update(ctx context.Context, ref string, changes WorkerChanges) (*Worker, error) {
	return fetch[Worker](ctx, c.transport, request{method: http.MethodPatch, path: workerPath(ref), body: changes, repeat: true})
}

// Delete removes a worker for good. With force also if it has sandboxes, which end or go back to their last
// checkpoint. Errors: NotFound; Conflict if it has sandboxes and force is false.
func (c *Workers) Delete(ctx context.Context, ref string, force bool) error {
	r := request{method: http.MethodDelete, path: workerPath(ref)}
	if force {
		r.query = url.Values{"force": {"true"}}
	}
	return c.call(ctx, r, nil)
}
