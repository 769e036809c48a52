package backup

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Names in a state directory.
const (
	Database    = "modbox.db"
	keyFile     = "secret.key"
	hostKeyFile = "ssh-host-key"
	checkpoints = "checkpoints"
	images      = "images"

	manifestName   = "manifest.json"
	manifestFormat = 1
	manifestMax    = 256 << 20
)

// managed are the names in a state directory that a restore replaces or sets aside. Everything else
// is created by a server, or belongs to running sandboxes.
var managed = []string{
	Database, Database + "-wal", Database + "-shm", "installation", keyFile, "token", "first-login", hostKeyFile,
	"agents", checkpoints, "streams", images,
}

// Images selects the images of a backup.
type Images string

// The choices.
const (
	// ImagesNeeded are the images of sandboxes, checkpoints and snapshots.
	ImagesNeeded Images = "needed"
	ImagesAll    Images = "all"
	ImagesNone   Images = "none"
)

// ParseImages returns the choice for text. Errors: Invalid, naming images.
func ParseImages(text string) (Images, error) {
	if i := Images(text); slices.Contains([]Images{ImagesNeeded, ImagesAll, ImagesNone}, i) {
		return i, nil
	}
	return "", sandbox.InvalidField("images", "must be needed, all or none")
}

// Manifest describes a backup.
type Manifest struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"created_at"`
	// Version of the program that made it.
	Version string `json:"version"`
	Images  Images `json:"images"`
	// Away are the root filesystems that snapshots and sandboxes need and that only the object store has.
	Away        []string `json:"images_in_object_store,omitempty"`
	Checkpoints bool     `json:"checkpoints"`
	Files       []File   `json:"files"`
}

// File is an entry of a backup.
type File struct {
	// Name is its path in the state directory, with slashes.
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Size returns the bytes of all files.
func (m *Manifest) Size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// tops returns the names in the state directory that the files are in.
func (m *Manifest) tops() []string {
	var names []string
	for _, f := range m.Files {
		top, _, _ := strings.Cut(f.Name, "/")
		names = append(names, top)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkName returns an error for a name that no file of a backup can have.
func checkName(name string) error {
	top, _, _ := strings.Cut(name, "/")
	if name != path.Clean(name) || !filepath.IsLocal(name) || !slices.Contains(managed, top) {
		return fmt.Errorf("it has a file %.200q, which does not belong to a backup", name)
	}
	return nil
}

func damaged(file string, err error) error {
	return sandbox.Wrap(sandbox.Invalid, err, "%s is damaged or not a complete backup; nothing was changed", file)
}
