// Package sshaccess has the routes of /v1 about SSH.
package sshaccess

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
)

// Server is how clients reach the SSH server. The zero value is a server without SSH.
type Server struct {
	Enabled  bool
	Host     string
	Port     int
	HostKeys []ssh.PublicKey
}

var describeOperation = huma.Operation{
	OperationID: "get-ssh", Method: http.MethodGet, Path: "/v1/ssh", Tags: []string{"account"},
	Summary: "Describe the SSH server", Description: "Its address, and its host keys for known_hosts.",
}

// Routes are the routes.
type Routes struct{ Server Server }

// Register adds the routes.
func (r *Routes) Register(m *route.Mux) { route.JSON(m, describeOperation, r.describe) }

// describe answers how clients reach the SSH server.
func (r *Routes) describe(context.Context, *struct{}) (*route.Body[wire.SSH], error) {
	s := r.Server
	out := wire.SSH{Enabled: s.Enabled, Host: s.Host, Port: s.Port, HostKeys: []wire.SSHHostKey{}}
	for _, key := range s.HostKeys {
		out.HostKeys = append(out.HostKeys, wire.SSHHostKey{PublicKey: publicKey(key), Fingerprint: ssh.FingerprintSHA256(key)})
	}
	return route.Reply(out), nil
}

// publicKey returns the type and the text of a key.
func publicKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
