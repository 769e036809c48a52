package wire

import "time"

// SSH describes the SSH server.
type SSH struct {
	Enabled  bool         `json:"enabled" doc:"Whether the server serves SSH clients."`
	Host     string       `json:"host" doc:"The host for SSH clients; empty without SSH." example:"sandbox.example.com"`
	Port     int          `json:"port" doc:"The port for SSH clients; 0 without SSH." example:"2222"`
	HostKeys []SSHHostKey `json:"host_keys" nullable:"false" doc:"The keys by which clients recognise the server."`
}

// SSHHostKey is a host key of the SSH server.
type SSHHostKey struct {
	PublicKey   string `json:"public_key" doc:"Type and key, as in known_hosts." example:"ssh-ed25519 AAAAC3Nza..."`
	Fingerprint string `json:"fingerprint" doc:"The fingerprint that ssh shows." example:"SHA256:47DEQpj8HBSa..."`
}

// AddSSHKey describes an SSH key to add.
type AddSSHKey struct {
	PublicKey        string `json:"public_key" minLength:"1" maxLength:"4096" doc:"The content of the key's .pub file: ed25519, ecdsa, or rsa with at least 2048 bits." example:"ssh-ed25519 AAAAC3Nza... me@laptop"`
	Name             string `json:"name,omitempty" maxLength:"200" doc:"Its name; the key's comment when omitted."`
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"315360000" doc:"How long it works; for ever when omitted."`
	WorkspaceOnly    bool   `json:"workspace_only,omitempty" doc:"Keep it out of its user's other workspaces."`
}

// SSHKey is a public key by which its user logs in over SSH.
type SSHKey struct {
	ID          string     `json:"id" format:"uuid" doc:"Its identifier."`
	Name        string     `json:"name" doc:"Its name; empty for none."`
	Type        string     `json:"type" doc:"Its type." example:"ssh-ed25519"`
	Fingerprint string     `json:"fingerprint" doc:"The fingerprint that ssh-keygen -l shows." example:"SHA256:47DEQpj8HBSa..."`
	PublicKey   string     `json:"public_key" doc:"Type and key, as in authorized_keys." example:"ssh-ed25519 AAAAC3Nza..."`
	WorkspaceID string     `json:"workspace_id,omitempty" doc:"The only workspace in which it works; absent for all workspaces of the user."`
	CreatedAt   time.Time  `json:"created_at" doc:"When it was added."`
	LastUsedAt  *time.Time `json:"last_used_at,omitempty" doc:"When it was last used, within a few minutes; absent when never."`
	ExpiresAt   *time.Time `json:"expires_at,omitempty" doc:"When it stops working; absent for never."`
}
