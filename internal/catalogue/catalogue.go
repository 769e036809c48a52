// Package catalogue manages the image catalogues of workspaces: image references with the defaults
// for sandboxes made from them, in addition to the built-in images, which are in every catalogue.
package catalogue

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Store stores entries; internal/store implements it.
type Store interface {
	// CreateCatalogueImage records an entry of a workspace. A new default replaces the former
	// default. Errors: Exists for a name that is taken; QuotaExceeded when the workspace has limit
	// entries.
	CreateCatalogueImage(ctx context.Context, c Entry, limit int) error
	// CatalogueImage returns an entry of a workspace. Errors: NotFound.
	CatalogueImage(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.ImageID) (Entry, error)
	// CatalogueImages returns the entries of a workspace, the oldest first.
	CatalogueImages(ctx context.Context, ws sandbox.WorkspaceID) ([]Entry, error)
	// DefaultCatalogueImage returns the default entry of a workspace. Errors: NotFound.
	DefaultCatalogueImage(ctx context.Context, ws sandbox.WorkspaceID) (Entry, error)
	// UpdateCatalogueImage replaces prev, an entry as a read returned it, by next. Errors: NotFound;
	// Conflict when the entry is not prev any more; Exists for a name that is taken.
	UpdateCatalogueImage(ctx context.Context, prev, next Entry) error
	// DeleteCatalogueImage removes an entry. Errors: NotFound.
	DeleteCatalogueImage(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.ImageID) error
	// DisabledImages returns the built-in images that are disabled, and since when.
	DisabledImages(ctx context.Context) (map[sandbox.ImageID]time.Time, error)
	// SetImageEnabled enables or disables a built-in image. Idempotent.
	SetImageEnabled(ctx context.Context, id sandbox.ImageID, enabled bool, by sandbox.UserID, at time.Time) error
}

// Registries stores the registry credentials of workspaces.
type Registries interface {
	// Registry returns a registry credential of a workspace. Errors: NotFound.
	Registry(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) (registry.Credential, error)
	// Registries returns the registry credentials of a workspace, the oldest first.
	Registries(ctx context.Context, ws sandbox.WorkspaceID) ([]registry.Credential, error)
}

// Images looks up the images that sandboxes are made from; internal/image implements it.
type Images interface {
	// List returns all pulled, built and built-in images, the default image among them.
	List(ctx context.Context) ([]spec.Image, error)
	// LookupFor returns what a workspace may know about the image that ref means in it, which may
	// require asking a registry. Errors: NotFound, Invalid.
	LookupFor(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error)
	// Lookup returns the image that ref means, without asking a registry. An image that has to
	// be built or pulled first has no digest. Errors: NotFound, naming ref.
	Lookup(ctx context.Context, ref string) (spec.Image, error)
	// Built returns the image that a workspace has built under a reference. Errors: NotFound.
	Built(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error)
	// ByID returns the image with that id. Errors: NotFound.
	ByID(ctx context.Context, id sandbox.ImageID) (spec.Image, error)
	// Runtimes returns the images that describe themselves as runtimes, the default runtime first.
	Runtimes(ctx context.Context) ([]spec.Runtime, error)
}

// Catalogue is the image catalogues of all workspaces. Safe for concurrent use. Entries of another
// workspace are NotFound, as if they did not exist.
type Catalogue struct {
	store      Store
	registries Registries
	images     Images
	memory     int64
}

// New returns the catalogues in a store. Entries without a memory limit get the limit of their
// image, else defaultMemory bytes.
func New(store Store, registries Registries, images Images, defaultMemory int64) *Catalogue {
	return &Catalogue{store: store, registries: registries, images: images, memory: defaultMemory}
}

// Listing is an entry in the form shown to users.
type Listing struct {
	Entry
	// RegistryName is the name of the entry's registry; "" when the entry has none or it was
	// deleted.
	RegistryName string
}

// Caller is the user who changes an entry.
type Caller struct {
	User      sandbox.UserID
	Workspace sandbox.WorkspaceID
	// Administrator is whether the caller administers the installation.
	Administrator bool
}

// List returns the built-in images, the default first, and then the workspace's own entries, oldest
// first; with enabledOnly only enabled entries.
func (c *Catalogue) List(ctx context.Context, ws sandbox.WorkspaceID, enabledOnly bool) ([]Listing, error) {
	own, err := c.store.CatalogueImages(ctx, ws)
	if err != nil {
		return nil, err
	}
	ownDefault := false
	for i := range own {
		ownDefault = ownDefault || own[i].IsDefault
	}
	builtin, err := c.builtin(ctx, ownDefault)
	if err != nil {
		return nil, err
	}
	registries, err := c.registries.Registries(ctx, ws)
	if err != nil {
		return nil, err
	}
	names := map[sandbox.RegistryID]string{}
	for _, r := range registries {
		names[r.ID] = r.Name
	}
	list := make([]Listing, 0, len(builtin)+len(own))
	for _, img := range append(builtin, own...) {
		if img.Enabled || !enabledOnly {
			list = append(list, Listing{img, names[img.Registry]})
		}
	}
	return list, nil
}

// builtin returns the entries of the built-in images.
func (c *Catalogue) builtin(ctx context.Context, ownDefault bool) ([]Entry, error) {
	images, err := c.images.List(ctx)
	if err != nil {
		return nil, err
	}
	disabled, err := c.store.DisabledImages(ctx)
	if err != nil {
		return nil, err
	}
	var list []Entry
	for i := range images {
		img := &images[i]
		if !img.Builtin {
			continue
		}
		at, off := disabled[img.ID]
		e := Entry{
			ID: img.ID, Name: img.Name, Image: img.Name, Tag: img.Tag, Description: img.Description,
			Enabled: !off, IsDefault: img.IsDefault && !ownDefault, MemoryBytes: c.memoryOf(img),
			ReadinessPort: img.ReadinessPort, TTL: img.TTL, CreatedAt: img.CreatedAt, UpdatedAt: img.UpdatedAt,
		}
		if off {
			e.UpdatedAt = at
		}
		list = append(list, e)
	}
	return list, nil
}

// memoryOf returns the default memory limit of an image's sandboxes.
func (c *Catalogue) memoryOf(img *spec.Image) int64 {
	if img.MemoryBytes != 0 {
		return img.MemoryBytes
	}
	return c.memory
}

// Get returns an entry. Errors: NotFound.
func (c *Catalogue) Get(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.ImageID) (Listing, error) {
	own, err := c.store.CatalogueImage(ctx, ws, id)
	if err == nil {
		return c.shown(ctx, own)
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return Listing{}, err
	}
	list, listErr := c.List(ctx, ws, false)
	if listErr != nil {
		return Listing{}, listErr
	}
	for _, e := range list {
		if e.ID == id {
			return e, nil
		}
	}
	return Listing{}, err
}

// shown adds the properties that other records have.
func (c *Catalogue) shown(ctx context.Context, own Entry) (Listing, error) {
	e := Listing{Entry: own}
	if own.Registry == "" {
		return e, nil
	}
	r, err := c.registries.Registry(ctx, own.Workspace, own.Registry)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return e, nil // deleted since; pulls report it
	}
	e.RegistryName = r.Name
	return e, err
}

// Create creates an entry, enabled unless f disables it. Omitted fields have the image's values.
// Errors: Invalid, naming the field; Exists, QuotaExceeded.
func (c *Catalogue) Create(ctx context.Context, who Caller, f Fields) (Listing, error) {
	if f.Name == nil {
		return Listing{}, sandbox.InvalidField("name", "must be set")
	}
	if f.Image == nil {
		return Listing{}, sandbox.InvalidField("image", "must be set")
	}
	now := time.Now().UTC()
	own := Entry{ID: NewID(), Workspace: who.Workspace, Enabled: true, CreatedBy: who.User, CreatedAt: now}
	if err := c.apply(ctx, &own, f, now); err != nil {
		return Listing{}, err
	}
	audit.FromContext(ctx).Made("sandbox-image", string(own.ID), own.Name)
	if err := c.store.CreateCatalogueImage(ctx, own, EntriesMax); err != nil {
		return Listing{}, err
	}
	return c.shown(ctx, own)
}

// Update changes the fields that are not nil. For a built-in image, only administrators of the
// installation may change Enabled, and nothing else can be changed. Existing sandboxes are not
// affected.
//
// Errors: NotFound; Forbidden for a built-in image; Invalid, naming the field; Exists; Conflict when
// others change it all the time.
func (c *Catalogue) Update(ctx context.Context, who Caller, id sandbox.ImageID, f Fields) (Listing, error) {
	var own Entry
	err := retry.Change(ctx, func() error {
		prev, err := c.store.CatalogueImage(ctx, who.Workspace, id)
		if err != nil {
			return err
		}
		own = prev
		if err := c.apply(ctx, &own, f, time.Now().UTC()); err != nil {
			return fmt.Errorf("change catalogue image %s: %w", id, err)
		}
		return c.store.UpdateCatalogueImage(ctx, prev, own)
	})
	if err == nil {
		return c.shown(ctx, own)
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return Listing{}, err
	}
	e, err := c.Get(ctx, who.Workspace, id)
	if err != nil {
		return Listing{}, err
	}
	enabled := f.Enabled
	if f.Enabled = nil; f != (Fields{}) || enabled == nil {
		return Listing{}, sandbox.Errorf(sandbox.Forbidden, "%s comes with Modbox and cannot be changed; create an entry of your own for it", e.Ref())
	}
	if !who.Administrator {
		return Listing{}, sandbox.Errorf(sandbox.Forbidden, "%s is in every workspace: an administrator of the installation may switch it on and off", e.Ref())
	}
	if err := c.store.SetImageEnabled(ctx, id, *enabled, who.User, time.Now().UTC()); err != nil {
		return Listing{}, err
	}
	return c.Get(ctx, who.Workspace, id)
}

// Delete deletes an entry; sandboxes made from it go on. Errors: NotFound; Forbidden for a built-in
// image.
func (c *Catalogue) Delete(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.ImageID) error {
	err := c.store.DeleteCatalogueImage(ctx, ws, id)
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	if e, getErr := c.Get(ctx, ws, id); getErr == nil {
		return sandbox.Errorf(sandbox.Forbidden, "%s comes with Modbox and cannot be deleted", e.Ref())
	}
	return err
}
