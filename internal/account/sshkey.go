package account

import (
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// SSHKey is a public key by which a user logs in over SSH.
type SSHKey struct {
	ID   string // a UUID
	User sandbox.UserID
	// Workspace is the only workspace in which the key works; "" is all workspaces of the user.
	Workspace   sandbox.WorkspaceID
	Name        string
	PublicKey   string // type and base64, as in authorized_keys
	Fingerprint string // SHA256:…, as ssh shows it
	CreatedAt   time.Time
	LastUsedAt  time.Time // zero until used; accurate to a few minutes
	ExpiresAt   time.Time // zero means never
}

// Type returns the type of the key, such as ssh-ed25519.
func (k SSHKey) Type() string {
	kind, _, _ := strings.Cut(k.PublicKey, " ")
	return kind
}

// Expired reports whether the key has stopped working at a time.
func (k SSHKey) Expired(at time.Time) bool { return !k.ExpiresAt.IsZero() && !at.Before(k.ExpiresAt) }
