package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// SandboxImage is an image of the workspace's catalogue: a reference with the
// defaults of the sandboxes that are made from it by its ID. What is on the
// server's disk is [Image].
type SandboxImage struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Image       string `json:"image"`
	Tag         string `json:"tag"` // "" for an image by digest
	Description string `json:"description,omitempty"`
	Builtin     bool   `json:"builtin"` // in every workspace
	Enabled     bool   `json:"enabled"`
	IsDefault   bool   `json:"is_default"` // used when a request names no image
	MemoryMB    int64  `json:"memory_mb"`  // limit of its sandboxes in MiB
	// ReadinessPort and TTLSeconds are 0 for none.
	ReadinessPort int       `json:"readiness_port,omitempty"`
	TTLSeconds    int64     `json:"ttl_seconds,omitempty"`
	RegistryID    string    `json:"registry_id,omitempty"` // "": whichever the workspace has for the host
	RegistryName  string    `json:"registry_name,omitempty"`
	WorkspaceID   string    `json:"workspace_id,omitempty"` // "" for a built-in one
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
}

// SandboxImageFields are what can be written of an image of the catalogue. Of a new
// one Name and Image must be set; else what is nil stays, or is as the image has it.
type SandboxImageFields struct {
	Name        *string `json:"name,omitempty"`
	Image       *string `json:"image,omitempty"` // may have the tag, or a digest instead
	Tag         *string `json:"tag,omitempty"`
	Description *string `json:"description,omitempty"`
	Enabled     *bool   `json:"enabled,omitempty"`
	IsDefault   *bool   `json:"is_default,omitempty"`
	MemoryMB    *int64  `json:"memory_mb,omitempty"` // 256 to 8192; 0: the image's own
	// ReadinessPort and TTLSeconds are 0 for none, RegistryID is "" for none.
	ReadinessPort *int64  `json:"readiness_port,omitempty"`
	TTLSeconds    *int64  `json:"ttl_seconds,omitempty"`
	RegistryID    *string `json:"registry_id,omitempty"`
}

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
