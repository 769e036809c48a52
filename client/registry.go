package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// Registries has the calls for the sign-ins of the workspace to container registries.
type Registries struct{ *transport }

// Registry is a workspace's sign-in to a container registry, without the password.
type Registry = wire.Registry

// RegistryFields are the writable fields of a registry. A new registry needs Name, Server, Username
// and Password; other nil fields stay.
type RegistryFields = wire.UpdateRegistry

// Create adds a registry to the workspace, for later pulls from its host. Errors: Invalid,
// naming the field, password when the registry was asked and does not accept it; Exists,
// QuotaExceeded; Timeout and Unavailable when it cannot be asked.
func (c *Registries) Create(ctx context.Context, f RegistryFields) (*Registry, error) {
	return fetch[Registry](ctx, c.transport, request{method: http.MethodPost, path: "/v1/registries", body: f})
}

// List lists the registries of the workspace, oldest first.
func (c *Registries) List() *List[Registry] {
	return newList[Registry](c.transport, "/v1/registries", nil)
}

// Get returns a registry. Errors: NotFound.
func (c *Registries) Get(ctx context.Context, id string) (*Registry, error) {
	return fetch[Registry](ctx, c.transport, request{method: http.MethodGet, path: "/v1/registries/" + url.PathEscape(id), repeat: true})
}

// Update changes a registry. Errors: NotFound; Invalid, naming the field; Exists.
func (c *Registries) Update(ctx context.Context, id string, f RegistryFields) (*Registry, error) {
	return fetch[Registry](ctx, c.transport, request{method: http.MethodPatch, path: "/v1/registries/" + url.PathEscape(id), body: f, repeat: true})
}

// Delete removes a registry. Images that need it cannot be pulled any
// more. Errors: NotFound.
func (c *Registries) Delete(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/registries/" + url.PathEscape(id), repeat: true}, nil)
}
