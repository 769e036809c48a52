// Package spec describes images: their names, their content, how they are run, and the defaults
// of sandboxes made from them. It knows nothing of how images are made or stored.
package spec

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Image is an image that this server has or can make: the source of a sandbox's files. The names
// that workspaces give to images are in package catalogue.
type Image struct {
	ID   sandbox.ImageID
	Name string // e.g. "modbox/code-exec"
	Tag  string // e.g. "latest"
	// Digest is the content address of the root filesystem; "" when it is not built yet.
	Digest      string
	Description string
	Builtin     bool  // in every workspace; cannot be deleted
	IsDefault   bool  // used when a request names no image
	SizeBytes   int64 // of the root filesystem, including all that lies below it
	OwnBytes    int64 // of SizeBytes, the bytes of its own file
	Config      Config
	MemoryBytes int64 // default memory limit
	// ReadinessPort and TTL are defaults for sandboxes made from it; 0 means none.
	ReadinessPort uint16
	TTL           time.Duration
	// Readers are the workspaces that have proved access to it; nil is every workspace.
	Readers   []sandbox.WorkspaceID
	CreatedAt time.Time
	UpdatedAt time.Time
}

// VisibleTo reports whether a workspace may know of the image.
func (i *Image) VisibleTo(ws sandbox.WorkspaceID) bool {
	return i.Readers == nil || slices.Contains(i.Readers, ws)
}

// Ref returns name:tag; without a tag name@digest, and without a name the digest.
func (i *Image) Ref() string {
	switch {
	case i.Name == "":
		return i.Digest
	case i.Tag == "":
		return i.Name + "@" + i.Digest
	}
	return i.Name + ":" + i.Tag
}

// Config describes how an image is run (OCI image config).
type Config struct {
	Entrypoint []string
	Cmd        []string
	Env        []string // "NAME=value"
	WorkingDir string
	User       string // "name", "uid", "name:group" or "uid:gid"; "" is root
	// ExposedPorts are the TCP ports on which its programs listen, in order.
	ExposedPorts []uint16 `json:",omitempty"`
}

// Mark identifies the configuration, for the UUID of an EROFS. So images with the same files and different
// configurations have different digests: the digest of a sandbox's image identifies the image.
func (c *Config) Mark() ([]byte, error) {
	all := func(list []string) []string { return append([]string{}, list...) } // nil and an empty list are the same
	data, err := json.Marshal([]any{
		"run 1", all(c.Entrypoint), all(c.Cmd), all(c.Env), c.WorkingDir, c.User, append([]uint16{}, c.ExposedPorts...),
	})
	mark := sha256.Sum256(data)
	return mark[:], err
}

// Runtime is a built-in image with a description that helps people choose.
type Runtime struct {
	// ID is the image's, the same on every installation.
	ID sandbox.ImageID
	// Name is its name in requests, such as "node:lts"; Image is the image's whole reference.
	Name, Image string
	Description string
	// IconURL, Color (as "#rrggbb") and URL are the project's; empty when unknown.
	IconURL, Color, URL string
	Tags                []string
	// Requires is the least that a sandbox needs; 0 is no requirement.
	Requires sandbox.Resources
	// NeedsNetwork says that it is of little use without a network.
	NeedsNetwork bool
	// WarmUp are the modules that its interpreter of Python loads before a memory template of it is saved.
	WarmUp []string
	// Readme is Markdown.
	Readme string
	// Source is the reference in a registry from which it is pulled; "" for a runtime that is built here.
	Source string
	// Missing says what keeps the server from having it; "" for nothing that is known before its first use.
	Missing string
	// Digest and SizeBytes describe its root filesystem; empty and 0 until its first use, which
	// builds it.
	Digest    string
	SizeBytes int64
	CreatedAt time.Time // of the first build; zero until then
}

// Layer is a step in the making of an image.
type Layer struct {
	// Digest is of the compressed layer, and SizeBytes its size; "" and 0 for a step that changed no file.
	Digest    string
	SizeBytes int64
	// CreatedBy is the instruction, and CreatedAt the time, as the image says; empty if it does not.
	CreatedBy string
	CreatedAt time.Time
	// Base: it belongs to the image below, see [Image].
	Base bool
}
