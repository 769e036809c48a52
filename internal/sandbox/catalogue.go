package sandbox

import (
	"time"

	"github.com/google/uuid"
)

// NewImageID returns a new ID for an entry of an image catalogue.
func NewImageID() ImageID { return ImageID(uuid.Must(uuid.NewV7()).String()) }

// Limits of the entries of an image catalogue.
const (
	CatalogueNameMax        = 255
	CatalogueTagMax         = 128
	CatalogueDescriptionMax = 1000
	CatalogueMemoryMin      = 256 << 20
	CatalogueMemoryMax      = 8192 << 20
	// CatalogueMax is how many entries of its own a workspace may have.
	CatalogueMax = 500
)

// CatalogueImage is an entry of a workspace's image catalogue: an image reference
// with what counts for sandboxes that are made from it by the entry's id.
type CatalogueImage struct {
	ID ImageID
	// Workspace is "" for a built-in image, which is in every catalogue.
	Workspace WorkspaceID
	// Name is unique in the workspace.
	Name string
	// Image is a reference without its tag, which is Tag; of a reference by digest
	// it is all, and Tag is "".
	Image, Tag  string
	Description string
	// Enabled is false for one from which no sandbox may be made.
	Enabled bool
	// IsDefault is true for the one that is used when a request names no image.
	IsDefault bool
	// MemoryBytes is the limit of its sandboxes.
	MemoryBytes int64
	// ReadinessPort and TTL are 0 for none.
	ReadinessPort uint16
	TTL           time.Duration
	// Registry is the credential to pull it with; "" is whichever the workspace has
	// for the reference's host.
	Registry             RegistryID
	CreatedBy            UserID
	CreatedAt, UpdatedAt time.Time
}

// Ref returns the reference of the entry's image.
func (c *CatalogueImage) Ref() string {
	if c.Tag == "" {
		return c.Image
	}
	return c.Image + ":" + c.Tag
}
