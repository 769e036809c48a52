package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// SandboxImage is an image of the workspace's catalogue: a reference with the
// defaults of the sandboxes that are made from it by its ID. What is on the
// server's disk is [Image].
type SandboxImage = wire.SandboxImage

// SandboxImageFields are what can be written of an image of the catalogue. Of a new
// one Name and Image must be set; else what is nil stays, or is as the image has it.
type SandboxImageFields = wire.UpdateSandboxImage

// CreateSandboxImage adds an image to the workspace's catalogue; nothing is pulled
// yet. Errors: Invalid, naming the field; Exists, QuotaExceeded.
func (c *Client) CreateSandboxImage(ctx context.Context, f SandboxImageFields) (*SandboxImage, error) {
	i := new(SandboxImage)
	return result(i, c.call(ctx, request{method: http.MethodPost, path: "/v1/sandbox-images", body: f}, i))
}

// SandboxImages lists the catalogue: the built-in images, the server's default
// first, and the workspace's own, the oldest first; with enabledOnly those that
// sandboxes may be made from.
func (c *Client) SandboxImages(enabledOnly bool) *List[SandboxImage] {
	return newList[SandboxImage](c, "/v1/sandbox-images", map[string]string{"enabled_only": flag(enabledOnly)})
}

// SandboxImage returns one of the catalogue. Errors: NotFound.
func (c *Client) SandboxImage(ctx context.Context, id string) (*SandboxImage, error) {
	i := new(SandboxImage)
	return result(i, c.call(ctx, request{method: http.MethodGet, path: "/v1/sandbox-images/" + url.PathEscape(id), repeat: true}, i))
}

// UpdateSandboxImage changes one; sandboxes that exist stay as they are. Of a
// built-in one an administrator of the installation may change Enabled. Errors:
// NotFound; Forbidden; Invalid, naming the field; Exists.
func (c *Client) UpdateSandboxImage(ctx context.Context, id string, f SandboxImageFields) (*SandboxImage, error) {
	i := new(SandboxImage)
	return result(i, c.call(ctx, request{method: http.MethodPatch, path: "/v1/sandbox-images/" + url.PathEscape(id), body: f, repeat: true}, i))
}

// DeleteSandboxImage removes one from the catalogue; sandboxes that were made from
// it go on. Errors: NotFound; Forbidden for a built-in one.
func (c *Client) DeleteSandboxImage(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/sandbox-images/" + url.PathEscape(id), repeat: true}, nil)
}
