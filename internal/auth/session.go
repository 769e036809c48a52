package auth

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
)

// How long the tokens of a session work.
const (
	AccessTime  = 5 * time.Minute
	RefreshTime = 30 * time.Minute
)

// Tokens is the pair that a session has at the moment.
type Tokens struct {
	Access, Refresh        string
	ExpiresIn, RefreshesIn time.Duration
}

// Login signs a user in by name, or e-mail address, and password.
//
// Errors: Unauthenticated, the same whatever is wrong; QuotaExceeded after too
// many failures for the address or the account.
func (c *Accounts) Login(ctx context.Context, login, password, remote string) (Tokens, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the user or the password is wrong")
	address, group := client(remote)
	login = strings.ToLower(strings.TrimSpace(login))
	if login == "" || len(login) > emailMax || len(password) > passwordMax {
		return Tokens{}, wrong
	}
	now := time.Now()
	if !c.addresses.take(group, now) || !c.logins.take(login, now) {
		return Tokens{}, sandbox.Errorf(sandbox.QuotaExceeded, "too many failed sign-ins; wait a minute")
	}
	u, err := c.store.UserByLogin(ctx, login)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return Tokens{}, fmt.Errorf("look up user: %w", err)
	}
	ok, err := c.passwords.matches(ctx, u.Password, password)
	if err != nil {
		return Tokens{}, fmt.Errorf("check password of user %s: %w", u.ID, err)
	}
	if !ok || !u.DisabledAt.IsZero() {
		return Tokens{}, wrong
	}
	c.logins.forgive(login)
	c.addresses.forgive(group)
	return c.begin(ctx, u.ID, "password", address)
}

// begin makes a session.
func (c *Accounts) begin(ctx context.Context, user sandbox.UserID, method, address string) (Tokens, error) {
	tokens, s := newTokens()
	s.ID, s.User, s.Method, s.Address, s.CreatedAt = uuid.Must(uuid.NewV7()).String(), user, method, address, s.RefreshedAt
	if err := c.store.CreateSession(ctx, s); err != nil {
		return Tokens{}, fmt.Errorf("record session of %s: %w", user, err)
	}
	return tokens, nil
}

func newTokens() (Tokens, sandbox.Session) {
	now := time.Now().UTC()
	t := Tokens{Access: secret(prefixAccess), Refresh: secret(prefixRefresh), ExpiresIn: AccessTime, RefreshesIn: RefreshTime}
	return t, sandbox.Session{
		Access: Hash(t.Access), AccessExpiresAt: now.Add(AccessTime),
		Refresh: Hash(t.Refresh), RefreshExpiresAt: now.Add(RefreshTime), RefreshedAt: now,
	}
}

// Refresh gives a session new tokens for its refresh token, which is used up. A
// second use of one ends the session: one of the two users has stolen it.
//
// Errors: Unauthenticated for a token that is unknown, expired or was used;
// QuotaExceeded after too many failures of the address.
func (c *Accounts) Refresh(ctx context.Context, refresh, remote string) (Tokens, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the refresh token is unknown, expired or was used; sign in again")
	_, group := client(remote)
	if !formed(refresh, prefixRefresh) {
		return Tokens{}, wrong
	}
	if !c.addresses.open(group, time.Now()) {
		return Tokens{}, sandbox.Errorf(sandbox.QuotaExceeded, "too many failed sign-ins; wait a minute")
	}
	tokens, next := newTokens()
	was, err := c.store.RotateSession(ctx, Hash(refresh), next)
	c.auth.cache.Invalidate(was.Access)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		c.addresses.fail(group, time.Now())
		return Tokens{}, wrong
	}
	if err != nil {
		return Tokens{}, fmt.Errorf("refresh session: %w", err)
	}
	return tokens, nil
}

// Logout ends the identity's session. Errors: Invalid for an API token, which has none.
func (c *Accounts) Logout(ctx context.Context, id Identity) error {
	if id.Session == "" {
		return sandbox.Errorf(sandbox.Invalid, "an API token has no session; revoke it instead")
	}
	if err := c.store.DeleteSession(ctx, id.Session); err != nil {
		return fmt.Errorf("end session %s: %w", id.Session, err)
	}
	c.auth.cache.InvalidateAll()
	return nil
}
