package sandbox

import (
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// RegistryID identifies a registry credential: a UUID in its canonical text form.
type RegistryID string

// NewRegistryID returns a new registry credential ID.
func NewRegistryID() RegistryID { return RegistryID(uuid.Must(uuid.NewV7()).String()) }

// Limits of registry credentials.
const (
	RegistryNameMax     = 255
	RegistryServerMax   = 512
	RegistryUsernameMax = 255
	RegistryPasswordMax = 512
	// RegistriesMax is how many a workspace may have.
	RegistriesMax = 100
)

// Registry is how a workspace signs in to a container registry.
type Registry struct {
	ID        RegistryID
	Workspace WorkspaceID
	// Name is unique in the workspace.
	Name string
	// Server is the registry as the caller wrote it, Host the host, with a port if
	// it has one, that references of its images begin with.
	Server, Host string
	Username     string
	Email        string
	// Password is encrypted for Registry.ID.
	Password Sealed
	// Enabled is false for one that is not to be used.
	Enabled              bool
	CreatedBy            UserID
	CreatedAt, UpdatedAt time.Time
}

// Sealed is a secret, encrypted with the key that KeyID names.
type Sealed struct {
	KeyID string
	Data  []byte
}

// Puller is for whom an image is had from a registry.
type Puller struct {
	Workspace WorkspaceID
	// Registry is the credential to use; "" is whichever the workspace has for the
	// image's host, if any.
	Registry RegistryID
}

// RegistryLogin is what a registry is told. The zero value is nobody.
type RegistryLogin struct {
	// Proof identifies the credential as it is now: another password is another one.
	Proof              string
	Username, Password string
}

// registryHost is what the specification of references lets hosts be. Libraries for
// references let pass more, such as "..".
var registryHost = regexp.MustCompile(`^(?:[[:alnum:]]+(?:-+[[:alnum:]]+)*(?:\.[[:alnum:]]+(?:-+[[:alnum:]]+)*)*|\[([[:xdigit:]:]+)\])(?::([0-9]+))?$`)

// IsRegistryHost reports whether a registry may be at a host, with a port or without.
func IsRegistryHost(host string) bool {
	parts := registryHost.FindStringSubmatch(host)
	if parts == nil {
		return false
	}
	if _, err := netip.ParseAddr(parts[1]); parts[1] != "" && err != nil {
		return false
	}
	port, err := strconv.ParseUint(parts[2], 10, 16)
	return parts[2] == "" || err == nil && port > 0
}
