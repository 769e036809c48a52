// Package sshkey keeps the public keys of users, by which they log in over SSH: adds, lists and deletes
// them, and says who logs in by a key.
package sshkey

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// MaxPerUser is the maximum number of keys of a user.
	MaxPerUser = 100
	// nameMax is the maximum length of a key's name, in characters.
	nameMax = 200
	// touchEvery is the resolution at which the last use of a key is recorded.
	touchEvery = 5 * time.Minute
)

// Store stores keys. It is safe for concurrent use.
type Store interface {
	// Add records a key and deletes the expired keys of its user. Errors: Exists if it is recorded for any user;
	// QuotaExceeded if the user has most keys; NotFound if the user is deleted.
	Add(ctx context.Context, key account.SSHKey, most int) error
	// OfUser returns the keys of a user, newest first, also expired keys.
	OfUser(ctx context.Context, user sandbox.UserID) ([]account.SSHKey, error)
	// ByFingerprint returns the key with a fingerprint, even when it has expired. Errors: NotFound.
	ByFingerprint(ctx context.Context, fingerprint string) (account.SSHKey, error)
	// ByID returns the key with an id, even when it has expired. Errors: NotFound.
	ByID(ctx context.Context, id string) (account.SSHKey, error)
	// Delete deletes a key of a user. Errors: NotFound.
	Delete(ctx context.Context, user sandbox.UserID, id string) error
	// Touch records when a key was last used.
	Touch(ctx context.Context, id string, at time.Time) error
}

// Users knows the rights of users. [auth.Authenticator] implements it.
type Users interface {
	// User returns the identity of a user in a workspace, see [auth.Authenticator.User].
	User(ctx context.Context, remote string, user sandbox.UserID, ws string, p account.Permission) (auth.Identity, error)
	// StillPermits returns nil while the user has the permission, see [auth.Authenticator.StillPermits].
	StillPermits(ctx context.Context, user sandbox.UserID, token string, ws sandbox.WorkspaceID, p account.Permission) error
}

// Keys are the keys of all users. They are safe for concurrent use.
type Keys struct {
	store   Store
	users   Users
	changed broadcast.Broadcast // sent when a key is deleted
}

// New returns the keys in a store.
func New(store Store, users Users) *Keys { return &Keys{store: store, users: users} }

// Request describes a key to add.
type Request struct {
	// PublicKey is its text, such as the content of id_ed25519.pub.
	PublicKey string
	// Name is "" for the key's comment.
	Name string
	// Lifetime is how long it works; 0 means for ever.
	Lifetime time.Duration
	// WorkspaceOnly limits it to the workspace of the identity.
	WorkspaceOnly bool
}

// Add adds a key for the identity's user. A key that a limited token adds is limited at least as much.
//
// Errors: Invalid, naming public_key, name or expires_in_seconds; Exists if the key was added before, by any
// user; QuotaExceeded if the user has [MaxPerUser] keys; Forbidden if the identity's token may not use
// sandboxes, or expires before the key.
func (k *Keys) Add(ctx context.Context, id auth.Identity, req Request) (account.SSHKey, error) {
	public, comment, err := Parse(req.PublicKey)
	if err != nil {
		return account.SSHKey{}, err
	}
	if req.Name == "" {
		req.Name = nameFrom(comment)
	}
	if err := sandbox.CheckText("name", req.Name, 0, nameMax); err != nil {
		return account.SSHKey{}, err
	}
	if req.Lifetime < 0 {
		return account.SSHKey{}, sandbox.InvalidField("expires_in_seconds", "must not be negative")
	}
	if !id.InScope(account.SandboxesWrite) {
		return account.SSHKey{}, sandbox.Errorf(sandbox.Forbidden, "this token lacks the scope %s and cannot give it to an SSH key", account.SandboxesWrite)
	}
	key := account.SSHKey{
		ID: uuid.Must(uuid.NewV7()).String(), User: id.User, Name: req.Name, PublicKey: textOf(public),
		Fingerprint: ssh.FingerprintSHA256(public), CreatedAt: time.Now().UTC(),
	}
	if req.WorkspaceOnly || id.WorkspaceOnly {
		key.Workspace = id.Workspace
	}
	if req.Lifetime > 0 {
		key.ExpiresAt = key.CreatedAt.Add(req.Lifetime)
	}
	if !id.Expires.IsZero() && (key.ExpiresAt.IsZero() || key.ExpiresAt.After(id.Expires)) {
		return account.SSHKey{}, &sandbox.Error{Code: sandbox.Forbidden, Field: "expires_in_seconds",
			Message: "this token expires at " + id.Expires.Format(time.RFC3339) + "; a key that it adds must not expire later"}
	}
	audit.FromContext(ctx).Detail("ssh_key", key.Fingerprint)
	if err := k.store.Add(ctx, key, MaxPerUser); err != nil {
		return account.SSHKey{}, err
	}
	audit.FromContext(ctx).Made("ssh-key", key.ID, key.Name)
	return key, nil
}

// nameFrom returns the name of a key with a comment, which may be anything; "" if it cannot be a name.
func nameFrom(comment string) string {
	name := []rune(strings.TrimSpace(sandbox.OneLine(comment)))
	text := string(name[:min(len(name), nameMax)])
	if sandbox.CheckText("name", text, 0, nameMax) != nil {
		return ""
	}
	return text
}

// List returns the keys of the identity's user, newest first. A token that is limited to a workspace sees
// only keys with the same limit.
func (k *Keys) List(ctx context.Context, id auth.Identity) ([]account.SSHKey, error) {
	all, err := k.store.OfUser(ctx, id.User)
	if err != nil {
		return nil, err
	}
	var list []account.SSHKey
	for _, key := range all {
		if sees(id, key) && !key.Expired(time.Now()) {
			list = append(list, key)
		}
	}
	return list, nil
}

func sees(id auth.Identity, key account.SSHKey) bool {
	return key.User == id.User && (!id.WorkspaceOnly || key.Workspace == id.Workspace)
}

// Delete deletes a key of the identity's user, by ID or fingerprint; its connections end. Errors: NotFound.
func (k *Keys) Delete(ctx context.Context, id auth.Identity, ref string) error {
	look := k.store.ByID
	if strings.HasPrefix(ref, "SHA256:") {
		look = k.store.ByFingerprint
	}
	key, err := look(ctx, ref)
	if err != nil {
		return err
	}
	if !sees(id, key) {
		return sandbox.Errorf(sandbox.NotFound, "there is no such SSH key")
	}
	e := audit.FromContext(ctx)
	e.Object("ssh-key", key.ID, key.Name)
	e.Detail("ssh_key", key.Fingerprint)
	if err := k.store.Delete(ctx, id.User, key.ID); err != nil {
		return err
	}
	k.changed.Send()
	return nil
}

// Changed returns a channel that is closed at the next deletion of a key. A caller that gets the channel
// before it checks a key knows when to check again.
func (k *Keys) Changed() <-chan struct{} { return k.changed.Wait() }

// Recheck makes callers of Changed check again, after a change that another process may have made.
func (k *Keys) Recheck() { k.changed.Send() }

// Find returns the record of a key that a client has proven to have. Errors: NotFound.
func (k *Keys) Find(ctx context.Context, public ssh.PublicKey) (account.SSHKey, error) {
	if Check(public) != nil {
		return account.SSHKey{}, sandbox.Errorf(sandbox.NotFound, "there is no such SSH key")
	}
	return k.store.ByFingerprint(ctx, ssh.FingerprintSHA256(public))
}

// Login returns the identity that a key gives the client at remote, an address with a port, in the workspace
// ws, an ID or slug; "" is the key's workspace, or else the user's default workspace. The identity has
// permission p and no other.
//
// Errors: Unauthenticated if the key has expired or its user is disabled; NotFound if the key does not extend
// to the workspace; Forbidden without p.
func (k *Keys) Login(ctx context.Context, remote string, key account.SSHKey, ws string, p account.Permission) (auth.Identity, error) {
	now := time.Now().UTC()
	if key.Expired(now) {
		return auth.Identity{User: key.User}, sandbox.Errorf(sandbox.Unauthenticated, "the SSH key has expired")
	}
	if ws == "" {
		ws = string(key.Workspace)
	}
	id, err := k.users.User(ctx, remote, key.User, ws, p)
	if err == nil && key.Workspace != "" && id.Workspace != key.Workspace {
		err = sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return auth.Identity{User: key.User}, err
	}
	id.Scopes, id.WorkspaceOnly, id.Expires = []account.Permission{p}, key.Workspace != "", key.ExpiresAt
	if now.Sub(key.LastUsedAt) > touchEvery {
		_ = k.store.Touch(ctx, key.ID, now) // informational: no login fails because of it
	}
	return id, nil
}

// StillPermits returns nil when the key with an ID gives permission p in the workspace now. Errors:
// Unauthenticated when the key was deleted or has expired, or its user is disabled or has left the workspace;
// Forbidden when the user lacks p now.
func (k *Keys) StillPermits(ctx context.Context, id string, ws sandbox.WorkspaceID, p account.Permission) error {
	key, err := k.store.ByID(ctx, id)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return sandbox.Errorf(sandbox.Unauthenticated, "the SSH key was deleted")
	case err != nil:
		return fmt.Errorf("look up SSH key %s: %w", id, err)
	case key.Expired(time.Now()):
		return sandbox.Errorf(sandbox.Unauthenticated, "the SSH key has expired")
	case key.Workspace != "" && key.Workspace != ws:
		return sandbox.Errorf(sandbox.Unauthenticated, "the SSH key does not extend to this workspace")
	}
	return k.users.StillPermits(ctx, key.User, "", ws, p)
}
