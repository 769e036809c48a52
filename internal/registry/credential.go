package registry

import (
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// NewID returns a new ID for a credential.
func NewID() sandbox.RegistryID { return sandbox.RegistryID(uuid.Must(uuid.NewV7()).String()) }

// Limits of credentials.
const (
	NameMax     = 255
	ServerMax   = 512
	UsernameMax = 255
	PasswordMax = 512
	// CredentialsMax is how many a workspace may have.
	CredentialsMax = 100
)

// Credential is a workspace's account at a container registry.
type Credential struct {
	ID        sandbox.RegistryID
	Workspace sandbox.WorkspaceID
	// Name is unique in the workspace.
	Name string
	// Server is the registry as the caller wrote it; Host is its host, with the port if there
	// is any, as in the references of its images.
	Server, Host string
	Username     string
	Email        string
	// Password is encrypted for Credential.ID.
	Password secret.Sealed
	// Enabled is whether it may be used.
	Enabled              bool
	CreatedBy            sandbox.UserID
	CreatedAt, UpdatedAt time.Time
}

// Puller identifies the workspace that asks a registry for an image.
type Puller struct {
	Workspace sandbox.WorkspaceID
	// Registry is the credential to use; "" is any credential of the workspace for the host of
	// the image.
	Registry sandbox.RegistryID
}

// Login signs in to a registry. The zero value is anonymous.
type Login struct {
	// Proof identifies the present version of the credential: it changes with the password.
	Proof              string
	Username, Password string
}
