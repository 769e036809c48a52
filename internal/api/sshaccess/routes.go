// Package sshaccess has the routes of /v1 about SSH.
package sshaccess

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sshkey"
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

// The operations of the routes for keys.
var (
	// addOperation is the operation of [Routes.add].
	addOperation = huma.Operation{
		OperationID: "add-ssh-key", Method: http.MethodPost, Path: "/v1/ssh-keys", Tags: []string{"account"}, DefaultStatus: http.StatusCreated,
		Summary: "Add an SSH key", Description: "For the caller, who can have 100 and logs in to sandboxes by them. A key belongs to one user.",
	}
	// listOperation is the operation of [Routes.list].
	listOperation = huma.Operation{
		OperationID: "list-ssh-keys", Method: http.MethodGet, Path: "/v1/ssh-keys", Tags: []string{"account"},
		Summary: "List SSH keys", Description: "The caller's that have not expired, newest first.",
	}
	// deleteOperation is the operation of [Routes.delete].
	deleteOperation = huma.Operation{
		OperationID: "delete-ssh-key", Method: http.MethodDelete, Path: "/v1/ssh-keys/{ssh_key}", Tags: []string{"account"}, DefaultStatus: http.StatusNoContent,
		Summary: "Delete an SSH key", Description: "It stops working at once, and its connections end.",
	}
)

// Routes are the routes. Keys may be nil for a description of the routes.
type Routes struct {
	Server Server
	Keys   *sshkey.Keys
}

type (
	addInput    struct{ Body wire.AddSSHKey }
	deleteInput struct {
		Key string `path:"ssh_key" maxLength:"64" doc:"The key's id, or its fingerprint, percent-encoded."`
	}
)

// Register adds the routes.
func (r *Routes) Register(m *route.Mux) {
	route.JSON(m, describeOperation, r.describe)
	route.JSON(m, addOperation, r.add)
	route.JSON(m, listOperation, r.list)
	route.JSON(m, deleteOperation, r.delete)
}

// describe answers how clients reach the SSH server.
func (r *Routes) describe(context.Context, *struct{}) (*route.Body[wire.SSH], error) {
	s := r.Server
	out := wire.SSH{Enabled: s.Enabled, Host: s.Host, Port: s.Port, HostKeys: []wire.SSHHostKey{}}
	for _, key := range s.HostKeys {
		out.HostKeys = append(out.HostKeys, wire.SSHHostKey{PublicKey: publicKey(key), Fingerprint: ssh.FingerprintSHA256(key)})
	}
	return route.Reply(out), nil
}

// add adds a key for the caller.
func (r *Routes) add(ctx context.Context, in *addInput) (*route.Body[wire.SSHKey], error) {
	id, _ := auth.FromContext(ctx)
	key, err := r.Keys.Add(ctx, id, sshkey.Request{
		PublicKey: in.Body.PublicKey, Name: in.Body.Name, Lifetime: time.Duration(in.Body.ExpiresInSeconds) * time.Second, WorkspaceOnly: in.Body.WorkspaceOnly,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(shown(key)), nil
}

// list lists the caller's keys.
func (r *Routes) list(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.SSHKey]], error) {
	id, _ := auth.FromContext(ctx)
	keys, err := r.Keys.List(ctx, id)
	return route.PagedOf(*in, keys, err, page.Order[account.SSHKey]{
		Name: "ssh-keys", Key: func(k account.SSHKey) string { return page.ByTime(k.CreatedAt, k.ID) }, Descending: true,
	}, shown)
}

// delete deletes a key of the caller.
func (r *Routes) delete(ctx context.Context, in *deleteInput) (*struct{}, error) {
	id, _ := auth.FromContext(ctx)
	return nil, r.Keys.Delete(ctx, id, in.Key)
}

func shown(k account.SSHKey) wire.SSHKey {
	return wire.SSHKey{
		ID: k.ID, Name: k.Name, Type: k.Type(), Fingerprint: k.Fingerprint, PublicKey: k.PublicKey, WorkspaceID: string(k.Workspace),
		CreatedAt: k.CreatedAt, LastUsedAt: route.Optional(k.LastUsedAt), ExpiresAt: route.Optional(k.ExpiresAt),
	}
}

// publicKey returns the type and the text of a key.
func publicKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
