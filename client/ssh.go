package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// SSHKey is a public key by which its user logs in over SSH.
type SSHKey = wire.SSHKey

// SSHKeys has the calls for the SSH keys of the client's user, which log in to sandboxes.
type SSHKeys struct{ *transport }

// Server returns the address of the SSH server and its host keys.
func (c *SSHKeys) Server(ctx context.Context) (*SSH, error) {
	return fetch[SSH](ctx, c.transport, request{method: http.MethodGet, path: "/v1/ssh", repeat: true})
}

// SSHKeyOptions configure a key to add; the zero value is a key with the name of its comment, that works
// for ever in all workspaces of its user.
type SSHKeyOptions struct {
	Name     string
	Lifetime time.Duration // 0 means for ever
	// WorkspaceOnly keeps the key out of its user's other workspaces.
	WorkspaceOnly bool
}

// Add adds a public key, given as the content of its .pub file. Errors: Invalid, naming public_key; Exists
// if the key was added before, by any user; QuotaExceeded beyond 100 keys.
func (c *SSHKeys) Add(ctx context.Context, publicKey string, o SSHKeyOptions) (*SSHKey, error) {
	body := wire.AddSSHKey{PublicKey: publicKey, Name: o.Name, ExpiresInSeconds: int64(seconds(o.Lifetime)), WorkspaceOnly: o.WorkspaceOnly}
	return fetch[SSHKey](ctx, c.transport, request{method: http.MethodPost, path: "/v1/ssh-keys", body: body})
}

// List lists the user's keys, newest first.
func (c *SSHKeys) List() *List[SSHKey] { return newList[SSHKey](c.transport, "/v1/ssh-keys", nil) }

// Delete deletes a key, by ID or fingerprint; its connections end. Errors: NotFound.
func (c *SSHKeys) Delete(ctx context.Context, key string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/ssh-keys/" + url.PathEscape(key), repeat: true}, nil)
}
