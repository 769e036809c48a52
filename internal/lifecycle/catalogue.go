package lifecycle

import (
	"context"
	"strings"

	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// meant is the image that a request means.
type meant struct {
	spec.Image // with the defaults that count
	// asked is the reference by which it was found; "" when that was not by one.
	asked string
	// id is the id of the image or of the entry in the workspace's catalogue, and registry the
	// credential of the entry.
	id       sandbox.ImageID
	registry sandbox.RegistryID
}

// imageFor returns the image of a request. Errors: Invalid, naming the field, for an unknown or
// disabled image, and for more memory than its entry in the catalogue permits.
func (s *Service) imageFor(ctx context.Context, c sandbox.Caller, req *CreateRequest) (meant, error) {
	field := "image"
	var img meant
	var err error
	switch {
	case req.ImageID != "":
		field = "image_id"
		img, err = s.imageByID(ctx, c, req)
	case req.Image != "":
		img.asked = req.Image
		img.Image, err = s.lookupImage(ctx, c.Workspace, req.Image)
	default:
		img, err = s.unnamedImage(ctx, c, req)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return meant{}, sandbox.InvalidField(field, "%s", sandbox.Explain("unknown image", err))
	}
	if err != nil {
		return meant{}, err
	}
	if err := s.prepare.CheckEnabled(ctx, field, &img.Image); err != nil {
		return meant{}, err
	}
	if img.id == "" {
		img.id = img.ID
	}
	return img, nil
}

func (s *Service) imageByID(ctx context.Context, c sandbox.Caller, req *CreateRequest) (meant, error) {
	entry, err := s.store.CatalogueImage(ctx, c.Workspace, req.ImageID)
	if err == nil {
		return s.fromEntry(ctx, "image_id", &entry, req)
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return meant{}, err
	}
	img, err := s.images.ByID(ctx, req.ImageID)
	if err == nil && !img.VisibleTo(c.Workspace) {
		err = sandbox.Errorf(sandbox.NotFound, "there is no image with id %q", req.ImageID)
	}
	return meant{Image: img}, err
}

// unnamedImage returns the workspace's default image, or else the server's.
func (s *Service) unnamedImage(ctx context.Context, c sandbox.Caller, req *CreateRequest) (meant, error) {
	entry, err := s.store.DefaultCatalogueImage(ctx, c.Workspace)
	if err == nil {
		return s.fromEntry(ctx, "image", &entry, req)
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return meant{}, err
	}
	img, err := s.defaultImage(ctx)
	return meant{Image: img}, err
}

// defaultImage returns the server's default image.
func (s *Service) defaultImage(ctx context.Context) (spec.Image, error) {
	list, err := s.images.List(ctx)
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

// fromEntry returns the image of an entry of the catalogue, with its defaults.
func (s *Service) fromEntry(ctx context.Context, field string, entry *catalogue.Entry, req *CreateRequest) (meant, error) {
	if !entry.Enabled {
		return meant{}, sandbox.InvalidField(field, "the image %q (%s) is disabled; enable it, or choose another", entry.Name, entry.ID)
	}
	if asked := req.Resources.MemoryBytes; asked > entry.MemoryBytes {
		return meant{}, sandbox.InvalidField("resources.memory", "must be at most %s, the limit of the image %q", sandbox.ShowBytes(entry.MemoryBytes), entry.Name)
	}
	img, err := s.lookupImage(ctx, entry.Workspace, entry.Ref())
	if err != nil {
		return meant{}, err
	}
	img.MemoryBytes, img.ReadinessPort, img.TTL = entry.MemoryBytes, entry.ReadinessPort, entry.TTL
	return meant{Image: img, asked: entry.Ref(), id: entry.ID, registry: entry.Registry}, nil
}

// ref returns the reference that the sandbox is made from. One by digest stays as
// it was asked for: the tag that the image was pulled by may mean another one now.
func (m *meant) ref() string {
	if strings.Contains(m.asked, "@") || strings.HasPrefix(m.asked, "sha256:") {
		return m.asked
	}
	return m.Ref()
}

// lookupImage returns the known facts about the image of a reference in a workspace: an image that
// it has built, or else an image for all. Errors: NotFound, naming ref.
func (s *Service) lookupImage(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img, err := s.images.Built(ctx, ws, ref)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return s.images.Lookup(ctx, ref)
	}
	return img, err
}
