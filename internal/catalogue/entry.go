package catalogue

import (
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
)

// NewID returns a new ID for an entry.
func NewID() sandbox.ImageID { return sandbox.ImageID(uuid.Must(uuid.NewV7()).String()) }

// Limits of entries.
const (
	NameMax        = 255
	TagMax         = 128
	DescriptionMax = 1000
	MemoryMin      = 256 << 20
	MemoryMax      = 8192 << 20
	// EntriesMax is how many entries of its own a workspace may have.
	EntriesMax = 500
)

// Entry is an image reference in the catalogue of a workspace, with the defaults of sandboxes
// that are made from it by the entry's id.
type Entry struct {
	ID sandbox.ImageID
	// Workspace is "" for a built-in image, which is in every catalogue.
	Workspace sandbox.WorkspaceID
	// Name is unique in the workspace.
	Name string
	// Image is a reference without its tag, which is in Tag. A reference by digest is whole in
	// Image, and Tag is "".
	Image, Tag  string
	Description string
	// Enabled is whether sandboxes may be made from it.
	Enabled bool
	// IsDefault is whether requests that name no image use it.
	IsDefault bool
	// MemoryBytes is the limit of its sandboxes.
	MemoryBytes int64
	// ReadinessPort and TTL are 0 for none.
	ReadinessPort uint16
	TTL           time.Duration
	// Registry is the credential for pulling it; "" is any credential of the workspace for the
	// host of the reference.
	Registry             sandbox.RegistryID
	CreatedBy            sandbox.UserID
	CreatedAt, UpdatedAt time.Time
}

// Ref returns the reference of the entry's image.
func (e *Entry) Ref() string {
	if e.Tag == "" {
		return e.Image
	}
	return e.Image + ":" + e.Tag
}
