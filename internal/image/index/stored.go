package index

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// StoredFile is a file of images that does not depend on the image directory: a root filesystem, or a blob of an OCI image.
type StoredFile struct {
	// Digest is the digest of the root filesystem or the blob.
	Digest string
	// Content is the sha256, in hexadecimal, of the file in the object store. It differs from the digest of a root filesystem with a mark, see
	// package rootfs. It is "" for a blob that the database has.
	Content   string
	SizeBytes int64
	// Workspace is the workspace of the first image that needed the file; "" for an image of all.
	Workspace sandbox.WorkspaceID
	// By is the installation that has stored the file.
	By string
	// ReleasedAt is the time since which no image needs the file.
	ReleasedAt time.Time
	// DamagedAt is the time when the file in the object store was found damaged or incomplete; zero for never.
	DamagedAt time.Time
}
