package client

import (
	"context"
	"net/http"
)

// SSHAccess is the access of the caller to sandboxes over SSH.
type SSHAccess struct{ client *Client }

// NewSSHAccess returns the access of the client's user.
func NewSSHAccess(c *Client) *SSHAccess { return &SSHAccess{c} }

// Server returns the address of the SSH server and its host keys.
func (a *SSHAccess) Server(ctx context.Context) (*SSH, error) {
	s := new(SSH)
	return result(s, a.client.call(ctx, request{method: http.MethodGet, path: "/v1/ssh", repeat: true}, s))
}
