package catalogue

import (
	"context"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// Wanted names the image of a future sandbox. ID is the id of an entry of the workspace's catalogue
// or of an image, and takes precedence over Ref, a reference. Without both it is the default image
// of the workspace, or else of the server.
type Wanted struct {
	ID  sandbox.ImageID
	Ref string
	// MemoryBytes is the requested memory limit; 0 is none.
	MemoryBytes int64
}

// Choice is an image for a sandbox, with the defaults of the entry that was chosen, if any.
type Choice struct {
	spec.Image
	// ImageID is the id of the entry, or else of the image.
	ImageID sandbox.ImageID
	// Registry is the credential that the entry names; "" for none.
	Registry sandbox.RegistryID
	// Field is the field of the request that names the image.
	Field string
	asked string // the reference by which it was looked up; "" without one
}

// Reference returns the reference to record for the sandbox. A reference by digest stays as it was
// requested: the tag by which the image was pulled may mean another image now.
func (c *Choice) Reference() string {
	if strings.Contains(c.asked, "@") || strings.HasPrefix(c.asked, "sha256:") {
		return c.asked
	}
	return c.Ref()
}

// Choose returns the image that a request of a workspace names. Errors: Invalid, naming the field,
// for an unknown or disabled image, for a built-in image that has to be pulled when there is no registry for
// it, and for more memory than the entry allows.
func (c *Catalogue) Choose(ctx context.Context, ws sandbox.WorkspaceID, want Wanted) (Choice, error) {
	var choice Choice
	var err error
	field := "image"
	switch {
	case want.ID != "":
		field = "image_id"
		choice, err = c.chooseID(ctx, ws, want)
	case want.Ref != "":
		choice.asked = want.Ref
		choice.Image, err = c.lookup(ctx, ws, want.Ref)
	default:
		choice, err = c.chooseDefault(ctx, ws, want)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return Choice{}, sandbox.InvalidField(field, "%s", sandbox.Explain("unknown image", err))
	}
	if err != nil {
		return Choice{}, err
	}
	if err := c.checkSource(ctx, field, &choice.Image); err != nil {
		return Choice{}, err
	}
	choice.Field = field
	if choice.ImageID == "" {
		choice.ImageID = choice.ID
	}
	return choice, nil
}

// checkSource returns an error for a built-in image that is known to be out of reach. Errors: Invalid, naming field.
func (c *Catalogue) checkSource(ctx context.Context, field string, img *spec.Image) error {
	if !img.Builtin || img.Digest != "" {
		return nil
	}
	list, err := c.images.Runtimes(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].ID == img.ID && list[i].Missing != "" {
			return sandbox.InvalidField(field, "%s cannot be had: %s", img.Ref(), list[i].Missing)
		}
	}
	return nil
}

func (c *Catalogue) chooseID(ctx context.Context, ws sandbox.WorkspaceID, want Wanted) (Choice, error) {
	e, err := c.store.CatalogueImage(ctx, ws, want.ID)
	if err == nil {
		return c.chooseEntry(ctx, "image_id", &e, want)
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return Choice{}, err
	}
	img, err := c.images.ByID(ctx, want.ID)
	if err == nil && !img.VisibleTo(ws) {
		err = sandbox.Errorf(sandbox.NotFound, "there is no image with id %q", want.ID)
	}
	return Choice{Image: img}, err
}

// chooseDefault returns the default image of the workspace, or else of the server.
func (c *Catalogue) chooseDefault(ctx context.Context, ws sandbox.WorkspaceID, want Wanted) (Choice, error) {
	e, err := c.store.DefaultCatalogueImage(ctx, ws)
	if err == nil {
		return c.chooseEntry(ctx, "image", &e, want)
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return Choice{}, err
	}
	img, err := c.DefaultImage(ctx)
	return Choice{Image: img}, err
}

// chooseEntry returns the image of an entry, with the entry's defaults.
func (c *Catalogue) chooseEntry(ctx context.Context, field string, e *Entry, want Wanted) (Choice, error) {
	if !e.Enabled {
		return Choice{}, sandbox.InvalidField(field, "the image %q (%s) is disabled; enable it, or choose another", e.Name, e.ID)
	}
	if want.MemoryBytes > e.MemoryBytes {
		return Choice{}, sandbox.InvalidField("resources.memory", "must be at most %s, the limit of the image %q", sandbox.ShowBytes(e.MemoryBytes), e.Name)
	}
	img, err := c.lookup(ctx, e.Workspace, e.Ref())
	if err != nil {
		return Choice{}, err
	}
	img.MemoryBytes, img.ReadinessPort, img.TTL = e.MemoryBytes, e.ReadinessPort, e.TTL
	return Choice{Image: img, asked: e.Ref(), ImageID: e.ID, Registry: e.Registry}, nil
}

// lookup returns the image that ref means in a workspace: an image that the workspace has built, or
// else an image for all workspaces. Errors: NotFound, naming ref.
func (c *Catalogue) lookup(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img, err := c.images.Built(ctx, ws, ref)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return c.images.Lookup(ctx, ref)
	}
	return img, err
}

// DefaultImage returns the default image of the server. Errors: Invalid if there is none.
func (c *Catalogue) DefaultImage(ctx context.Context) (spec.Image, error) {
	list, err := c.images.List(ctx)
	if err != nil {
		return spec.Image{}, err
	}
	for _, img := range list {
		if img.IsDefault {
			return img, nil
		}
	}
	return spec.Image{}, sandbox.InvalidField("image", "this server has no default image; name one")
}

// Images returns the images that a workspace may see.
func (c *Catalogue) Images(ctx context.Context, ws sandbox.WorkspaceID) ([]spec.Image, error) {
	list, err := c.images.List(ctx)
	return slices.DeleteFunc(list, func(img spec.Image) bool { return !img.VisibleTo(ws) }), err
}

// Image returns the image that a reference means: an image of this server, or an image that a
// registry may have. Of the latter, and of an image that the workspace may not see, only the id and
// the name are known. Errors: Invalid, NotFound.
func (c *Catalogue) Image(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img, err := c.images.Lookup(ctx, ref)
	if err != nil || img.VisibleTo(ws) {
		return img, err
	}
	return spec.Image{ID: img.ID, Name: img.Name, Tag: img.Tag}, nil
}

// Runtimes returns the images that describe themselves as runtimes, built or not, the default
// runtime first.
func (c *Catalogue) Runtimes(ctx context.Context) ([]spec.Runtime, error) {
	return c.images.Runtimes(ctx)
}
