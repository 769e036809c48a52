// Package registry manages the credentials of workspaces for container registries.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	ociname "github.com/google/go-containerregistry/pkg/name"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// Store stores credentials; internal/store implements it.
type Store interface {
	// CreateRegistry records a credential. Errors: Exists for a name that is taken; QuotaExceeded
	// when the workspace has limit credentials.
	CreateRegistry(ctx context.Context, r Credential, limit int) error
	// Registry returns a credential of a workspace. Errors: NotFound.
	Registry(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) (Credential, error)
	// Registries returns the credentials of a workspace, the oldest first.
	Registries(ctx context.Context, ws sandbox.WorkspaceID) ([]Credential, error)
	// UpdateRegistry replaces prev, a credential as a read returned it, by next. Errors: NotFound; Conflict
	// when the credential is not prev any more; Exists for a name that is taken.
	UpdateRegistry(ctx context.Context, prev, next Credential) error
	// DeleteRegistry removes a credential. Errors: NotFound.
	DeleteRegistry(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) error
}

// Keys encrypts passwords; internal/secret implements it.
type Keys interface {
	// Seal encrypts a secret so that only Unseal for the same object decrypts it.
	Seal(plain, object string) (secret.Sealed, error)
	// Unseal decrypts a secret of an object. Errors: Unavailable when its key is missing.
	Unseal(s secret.Sealed, object string) (string, error)
}

// Registries are the credentials of all workspaces. Safe for concurrent use. Registries of another
// workspace are NotFound, as if they did not exist.
type Registries struct {
	store  Store
	keys   Keys
	checks *checks
}

// SignIn asks the registry at a host whether it accepts a login, for a bounded time; internal/image
// implements it. Errors: Forbidden when it does not.
type SignIn func(ctx context.Context, host string, login Login) error

// New returns the credentials in a store. Without signIn no registry is asked.
func New(store Store, keys Keys, signIn SignIn, options ...Option) *Registries {
	s := &Registries{store: store, keys: keys, checks: newChecks(signIn)}
	for _, o := range options {
		o(s)
	}
	return s
}

// Fields are the writable fields of a credential; nil leaves a field unchanged.
type Fields struct {
	Name, Server, Username, Password, Email *string
	Enabled                                 *bool
	// Verify checks the new login with the registry first.
	Verify bool
}

// Create creates a credential, enabled unless f disables it. Errors: Invalid, naming the field,
// password when the registry does not accept it; Exists; QuotaExceeded, also when the workspace has
// too many checks in progress; Unavailable when the registry cannot be asked. A failing check takes
// [CheckTime].
func (s *Registries) Create(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, f Fields) (Credential, error) {
	for name, value := range map[string]*string{"name": f.Name, "server": f.Server, "username": f.Username, "password": f.Password} {
		if value == nil {
			return Credential{}, sandbox.InvalidField(name, "must be set")
		}
	}
	now := time.Now().UTC()
	r := Credential{ID: NewID(), Workspace: ws, Enabled: true, CreatedBy: user, CreatedAt: now}
	if err := s.apply(&r, f, now); err != nil {
		return Credential{}, err
	}
	if f.Verify {
		if err := s.verify(ctx, &r); err != nil {
			return Credential{}, err
		}
	}
	audit.FromContext(ctx).Made("registry", string(r.ID), r.Name)
	return r, s.store.CreateRegistry(ctx, r, CredentialsMax)
}

// verify asks the registry whether it accepts the credential.
func (s *Registries) verify(ctx context.Context, r *Credential) error {
	if s.checks.signIn == nil {
		return sandbox.Errorf(sandbox.Unsupported, "this server does not connect to registries")
	}
	login, err := s.loginOf(r)
	if err != nil {
		return err
	}
	err = s.checks.check(ctx, r.Workspace, r.Host, login)
	var refused *sandbox.Error
	if errors.As(err, &refused) && refused.Code == sandbox.Forbidden {
		return &sandbox.Error{Code: sandbox.Invalid, Field: "password", Message: refused.Message, Err: refused.Err}
	}
	return err
}

// Update changes the fields that are not nil. Errors: NotFound, and the errors of
// [Registries.Create]; Conflict when others change it all the time.
func (s *Registries) Update(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID, f Fields) (Credential, error) {
	var next Credential
	err := retry.Change(ctx, func() error {
		prev, err := s.store.Registry(ctx, ws, id)
		if err != nil {
			return err
		}
		next = prev
		if err := s.apply(&next, f, time.Now().UTC()); err != nil {
			return fmt.Errorf("change registry %s: %w", id, err)
		}
		if f.Verify {
			if err := s.verify(ctx, &next); err != nil {
				return err
			}
		}
		return s.store.UpdateRegistry(ctx, prev, next)
	})
	if err != nil {
		return Credential{}, err
	}
	return next, nil
}

// Get returns a credential. Errors: NotFound.
func (s *Registries) Get(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) (Credential, error) {
	return s.store.Registry(ctx, ws, id)
}

// List returns the credentials of a workspace, oldest first.
func (s *Registries) List(ctx context.Context, ws sandbox.WorkspaceID) ([]Credential, error) {
	return s.store.Registries(ctx, ws)
}

// Delete deletes a credential, even if it is in use. Errors: NotFound.
func (s *Registries) Delete(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) error {
	return s.store.DeleteRegistry(ctx, ws, id)
}

// Login returns how to sign in to the registry at a host for a pull: with the credential that who
// names, else with the oldest enabled credential of the workspace for the host, else anonymously.
//
// Errors: Forbidden when the named credential is gone, disabled or for another host; Unavailable
// when its password cannot be decrypted.
func (s *Registries) Login(ctx context.Context, who Puller, host string) (Login, error) {
	r, err := s.choose(ctx, who, host)
	if err != nil || r == nil {
		return Login{}, err
	}
	return s.loginOf(r)
}

// loginOf returns the login for the registry of a credential. Errors: Unavailable.
func (s *Registries) loginOf(r *Credential) (Login, error) {
	password, err := s.keys.Unseal(r.Password, string(r.ID))
	if err != nil {
		return Login{}, sandbox.Wrap(sandbox.Unavailable, err, "the password of registry %q (%s) cannot be decrypted: restore the server's key file, or set the password again", r.Name, r.ID)
	}
	return Login{
		Proof: string(r.ID) + "@" + strconv.FormatInt(r.UpdatedAt.UnixNano(), 36), Username: r.Username, Password: password,
	}, nil
}

func (s *Registries) choose(ctx context.Context, who Puller, host string) (*Credential, error) {
	if who.Registry == "" {
		list, err := s.store.Registries(ctx, who.Workspace)
		for i := range list {
			if list[i].Enabled && list[i].Host == host {
				return &list[i], err
			}
		}
		return nil, err
	}
	r, err := s.store.Registry(ctx, who.Workspace, who.Registry)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil, sandbox.Wrap(sandbox.Forbidden, err, "its registry credential %s was deleted; give the image another credential", who.Registry)
	case err != nil:
		return nil, err
	case !r.Enabled:
		return nil, sandbox.Errorf(sandbox.Forbidden, "its registry credential %q (%s) is disabled", r.Name, r.ID)
	case r.Host != host:
		// Another host must not see the password.
		return nil, sandbox.Errorf(sandbox.Forbidden, "its registry credential %q (%s) is for %s, not for %s", r.Name, r.ID, r.Host, host)
	}
	return &r, nil
}

// apply checks fields and writes them.
func (s *Registries) apply(r *Credential, f Fields, now time.Time) (err error) {
	for _, field := range []struct {
		name     string
		from     *string
		to       *string
		min, max int
	}{
		{"name", f.Name, &r.Name, 1, NameMax},
		{"server", f.Server, &r.Server, 1, ServerMax},
		{"username", f.Username, &r.Username, 1, UsernameMax},
		{"email", f.Email, &r.Email, 0, NameMax},
	} {
		if field.from == nil {
			continue
		}
		if err := sandbox.CheckText(field.name, *field.from, field.min, field.max); err != nil {
			return err
		}
		*field.to = *field.from
	}
	if f.Password != nil {
		if err := checkPassword(*f.Password); err != nil {
			return err
		}
	}
	if strings.Contains(r.Username, ":") {
		return sandbox.InvalidField("username", "must not have a colon: registries could not tell it from the password")
	}
	if _, err := mail.ParseAddress(r.Email); err != nil && r.Email != "" {
		return sandbox.InvalidField("email", "%q is not an e-mail address", r.Email)
	}
	before := r.Host
	if r.Host, err = Host(r.Server); err != nil {
		return err
	}
	if before != "" && r.Host != before && f.Password == nil {
		// A user who may change a credential must not learn the password, by pointing it at a
		// server of their own.
		return sandbox.InvalidField("password", "must be given again with a new server: the password for %s is not sent to another server", before)
	}
	if f.Enabled != nil {
		r.Enabled = *f.Enabled
	}
	r.UpdatedAt = now
	if f.Password == nil {
		return nil
	}
	if r.Password, err = s.keys.Seal(*f.Password, string(r.ID)); err != nil {
		return fmt.Errorf("encrypt password of registry %s: %w", r.ID, err)
	}
	return nil
}

// checkPassword refuses passwords that are too short, too long, or cannot be sent. It is never
// displayed, and may consist of spaces.
func checkPassword(text string) error {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return sandbox.InvalidField("password", "must be text without control characters")
	case n == 0:
		return sandbox.InvalidField("password", "must not be empty")
	case n > PasswordMax:
		return sandbox.InvalidField("password", "has %d characters, more than %d", n, PasswordMax)
	}
	return nil
}

// Host returns the host of a registry, in the form used in references, from what people write:
// ghcr.io, registry.example.com:5000, https://index.docker.io/v1/, docker.io. Errors: Invalid,
// naming the field server.
func Host(server string) (string, error) {
	host := server
	for _, scheme := range []string{"https://", "http://"} {
		host = strings.TrimPrefix(host, scheme)
	}
	host, _, _ = strings.Cut(host, "/")
	registry, err := ociname.NewRegistry(host, ociname.StrictValidation)
	if err != nil || !reference.IsHost(host) {
		return "", sandbox.InvalidField("server", "%q is not a registry such as ghcr.io or registry.example.com:5000", server)
	}
	return registry.RegistryStr(), nil
}
