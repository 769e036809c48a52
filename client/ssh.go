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

// SSHAccess is the access of the caller to sandboxes over SSH.
type SSHAccess struct{ client *Client }

// NewSSHAccess returns the access of the client's user.
func NewSSHAccess(c *Client) *SSHAccess { return &SSHAccess{c} }

// Server returns the address of the SSH server and its host keys.
func (a *SSHAccess) Server(ctx context.Context) (*SSH, error) {
	s := new(SSH)
	return result(s, a.client.call(ctx, request{method: http.MethodGet, path: "/v1/ssh", repeat: true}, s))
}

// SSHKeyOptions configure a key to add; the zero value is a key with the name of its comment, that works
// for ever in all workspaces of its user.
type SSHKeyOptions struct {
	Name     string
	Lifetime time.Duration // 0 means for ever
	// WorkspaceOnly keeps the key out of its user's other workspaces.
	WorkspaceOnly bool
}

// AddKey adds a public key, given as the content of its .pub file. Errors: Invalid, naming public_key; Exists
// if the key was added before, by any user; QuotaExceeded beyond 100 keys.
func (a *SSHAccess) AddKey(ctx context.Context, publicKey string, o SSHKeyOptions) (*SSHKey, error) {
	k := new(SSHKey)
	body := wire.AddSSHKey{PublicKey: publicKey, Name: o.Name, ExpiresInSeconds: int64(seconds(o.Lifetime)), WorkspaceOnly: o.WorkspaceOnly}
	return result(k, a.client.call(ctx, request{method: http.MethodPost, path: "/v1/ssh-keys", body: body}, k))
}

// Keys lists the user's keys, newest first.
func (a *SSHAccess) Keys() *List[SSHKey] { return newList[SSHKey](a.client, "/v1/ssh-keys", nil) }

// DeleteKey deletes a key, by ID or fingerprint; its connections end. Errors: NotFound.
func (a *SSHAccess) DeleteKey(ctx context.Context, key string) error {
	return a.client.call(ctx, request{method: http.MethodDelete, path: "/v1/ssh-keys/" + url.PathEscape(key), repeat: true}, nil)
}
