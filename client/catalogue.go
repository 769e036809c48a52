package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// SandboxImages has the calls for the images of the workspace's catalogue.
type SandboxImages struct{ *transport }

// SandboxImage is an image of the workspace's catalogue: a reference with the defaults of the
// sandboxes that are made from it by its ID. [Image] is an image on the server's disk.
type SandboxImage = wire.SandboxImage

// SandboxImageFields are the writable fields of an image of the catalogue. A new image needs Name
// and Image; other nil fields stay, or come from the image.
type SandboxImageFields = wire.UpdateSandboxImage

// Create adds an image to the workspace's catalogue; nothing is pulled
// yet. Errors: Invalid, naming the field; Exists, QuotaExceeded.
func (c *SandboxImages) Create(ctx context.Context, f SandboxImageFields) (*SandboxImage, error) {
	return fetch[SandboxImage](ctx, c.transport, request{method: http.MethodPost, path: "/v1/sandbox-images", body: f})
}

// List lists the catalogue: the built-in images, the server's default first, and the
// workspace's own, oldest first; with enabledOnly only the enabled images.
func (c *SandboxImages) List(enabledOnly bool) *List[SandboxImage] {
	return newList[SandboxImage](c.transport, "/v1/sandbox-images", map[string]string{"enabled_only": flag(enabledOnly)})
}

// Get returns an image of the catalogue. Errors: NotFound.
func (c *SandboxImages) Get(ctx context.Context, id string) (*SandboxImage, error) {
	return fetch[SandboxImage](ctx, c.transport, request{method: http.MethodGet, path: "/v1/sandbox-images/" + url.PathEscape(id), repeat: true})
}

// Update changes an image of the catalogue; sandboxes that exist stay as they are. An
// administrator of the installation may change Enabled of a built-in image. Errors: NotFound;
// Forbidden; Invalid, naming the field; Exists.
func (c *SandboxImages) Update(ctx context.Context, id string, f SandboxImageFields) (*SandboxImage, error) {
	return fetch[SandboxImage](ctx, c.transport, request{method: http.MethodPatch, path: "/v1/sandbox-images/" + url.PathEscape(id), body: f, repeat: true})
}

// Delete removes an image from the catalogue; sandboxes that were made from it go on.
// Errors: NotFound; Forbidden for a built-in image.
func (c *SandboxImages) Delete(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/sandbox-images/" + url.PathEscape(id), repeat: true}, nil)
}
