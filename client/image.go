package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// Images has the calls for images, which sandboxes are made from.
type Images struct{ *transport }

// List lists the images that sandboxes can be made from: the built-in images, the default first,
// and then the others, by name.
func (c *Images) List() *List[Image] { return newList[Image](c.transport, "/v1/images", nil) }

// Get returns an image with its layers, named by its id or a reference. Errors: NotFound.
func (c *Images) Get(ctx context.Context, image string) (*Image, error) {
	return fetch[Image](ctx, c.transport, request{method: http.MethodGet, path: "/v1/images/" + url.PathEscape(image), repeat: true})
}

// ImageProgress reports the progress of a pull.
type ImageProgress struct {
	// Done and Total count the unit in Message, bytes while pulling; Total is 0 when unknown.
	Phase   string `json:"phase"`
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Message string `json:"message"`
}

// Pull has the server ask a registry for an image and download its missing parts. A create
// does so by itself if the server does not have the image. It calls progress, which may be nil,
// until it returns. When ctx ends the pull goes on only if others wait for it.
//
// Errors: Invalid, NotFound, Forbidden, Unsupported, TooLarge, Timeout and Unavailable, with the
// registry's message.
func (c *Images) Pull(ctx context.Context, ref string, progress func(ImageProgress)) (*Image, error) {
	body := wire.ImagePull{Image: ref}
	return c.watchImage(ctx, "pull "+ref, request{method: http.MethodPost, path: "/v1/images/pull", body: body, repeat: true}, progress)
}

// watchImage sends a request whose answer is progress and finally an image.
func (c *Images) watchImage(ctx context.Context, what string, r request, progress func(ImageProgress)) (*Image, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		var m struct {
			ImageProgress
			Type  string `json:"type"`
			Code  Code   `json:"code"`
			Image *Image `json:"image"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		switch {
		case m.Type == "done" && m.Image != nil:
			return m.Image, nil
		case m.Type == "error":
			return nil, &Error{Code: m.Code, Message: m.Message}
		case m.Type == "progress" && progress != nil:
			progress(m.ImageProgress)
		}
	}
}

// Delete removes an image, named by its id or a reference: an image that the workspace has
// built, or that its credentials gave access to. Sandboxes and snapshots made from it go on; its
// files stay until nothing needs them and they are pruned. The client never repeats the request,
// because the name may mean another image then.
//
// Errors: NotFound; Forbidden for an image for all workspaces, which only administrators of the
// installation may remove; Conflict for a digest that several images have.
func (c *Images) Delete(ctx context.Context, image string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/images/" + url.PathEscape(image)}, nil)
}

// ImagePruneOptions select the images to prune.
type ImagePruneOptions = wire.PruneImages

// PrunedImages are the images that were removed, or would be when DryRun is true.
type PrunedImages = wire.PrunedImages

// PrunedImage is an image that was removed.
type PrunedImage = wire.PrunedImage

// Prune removes the unused images of the workspace: removed and replaced images, and cached
// layers of builds. Errors: Forbidden for All.
func (c *Images) Prune(ctx context.Context, o ImagePruneOptions) (*PrunedImages, error) {
	return fetch[PrunedImages](ctx, c.transport, request{method: http.MethodPost, path: "/v1/images/prune", body: o, repeat: true})
}
