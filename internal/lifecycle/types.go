package lifecycle

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Caller is who asks: every call is made by a user within one workspace, and
// sees only that workspace's objects.
type Caller struct {
	User      sandbox.UserID
	Workspace sandbox.WorkspaceID
}

// CreateRequest asks for a sandbox. Zero values mean the image's or the server's default.
type CreateRequest struct {
	// Name is the caller's identifier, 1 to 255 characters; "" means one is made up.
	// While a sandbox of that name lives, the same request again answers the
	// existing sandbox, and a different one is refused with code exists.
	Name string
	// Image is a reference such as "modbox/code-exec" or "modbox/code-exec:latest";
	// ImageID wins when both are set; when neither is, the default image is used.
	Image   string
	ImageID sandbox.ImageID
	Env     map[string]string
	Labels  map[string]string
	// Resources fields that are 0 get the image's or the server's default.
	Resources sandbox.Resources
	// TTL is 0 for the image's default, else between sandbox.TTLMin and TTLMax.
	TTL time.Duration
	// Replace ends a live sandbox of the same name first.
	Replace bool
	// IdempotencyKey, when set, makes a repeated create within 24 hours answer the
	// sandbox of the first one, even after its end; the same key with another
	// request is refused with code conflict.
	IdempotencyKey string
}

// Filter selects sandboxes for [Service.List].
type Filter = sandbox.Filter

// Page is one page of a list, newest first.
type Page = sandbox.Page
