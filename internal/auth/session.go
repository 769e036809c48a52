package auth

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// Lifetimes of the tokens of a session.
const (
	AccessTime  = 5 * time.Minute
	RefreshTime = 30 * time.Minute
)

// Lifetimes of the refresh tokens and the session of a program on the user's machine, which may not
// be used for long periods.
const (
	ProgramRefreshTime = 30 * 24 * time.Hour
	ProgramTime        = 90 * 24 * time.Hour
)

// ConsoleTime is the lifetime of a session of the web console, and of its access token: browsers
// keep that in a cookie that no script can read, so that it need not be exchanged for others.
const ConsoleTime = 12 * time.Hour

// Use is the kind of client that signs in; it determines how long the session lasts.
type Use int

const (
	// ForPage is a session whose refresh tokens work for [RefreshTime].
	ForPage Use = iota
	// ForProgram is a session of [ProgramTime], whose refresh tokens work for [ProgramRefreshTime].
	ForProgram
	// ForConsole is a session of [ConsoleTime], whose access token works for as long.
	ForConsole
)

// UseOf returns the kind of a client that calls the API.
func UseOf(program bool) Use {
	if program {
		return ForProgram
	}
	return ForPage
}

// Tokens is the current pair of tokens of a session.
type Tokens struct {
	Access, Refresh        string
	ExpiresIn, RefreshesIn time.Duration
}

// Login signs in a user by name or e-mail address, and password.
//
// Errors: Unauthenticated, the same for an unknown user and a wrong password; QuotaExceeded after
// too many failures of the address. Failures from other addresses only delay it, see [attempts].
// Unavailable if another server checks passwords.
func (c *Accounts) Login(ctx context.Context, login, password, remote string, use Use) (Tokens, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the user or the password is wrong")
	address, group := audit.Client(remote)
	login = strings.ToLower(strings.TrimSpace(login))
	if login == "" || len(login) > emailMax || len(password) > passwordMax {
		return Tokens{}, wrong
	}
	if err := c.cfg.Owner.CheckPrimary(); err != nil { // the attempts of all servers are limited together
		return Tokens{}, err
	}
	succeeded, err := c.attempts.begin(ctx, login, group)
	if err != nil {
		return Tokens{}, err
	}
	u, err := c.store.Users.UserByLogin(ctx, login)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return Tokens{}, fmt.Errorf("look up user: %w", err)
	}
	if err == nil { // not an unknown name: somebody may have typed a password there
		audit.FromContext(ctx).Object("user", string(u.ID), u.Name)
	}
	ok, err := c.passwords.matches(ctx, group, u.Password, password)
	if err != nil {
		return Tokens{}, fmt.Errorf("check password of user %s: %w", u.ID, err)
	}
	if !ok || !u.DisabledAt.IsZero() {
		return Tokens{}, wrong
	}
	succeeded()
	return c.begin(ctx, u.ID, "password", address, use)
}

// begin creates a session.
func (c *Accounts) begin(ctx context.Context, user sandbox.UserID, method, address string, use Use) (Tokens, error) {
	tokens, s := newTokens()
	s.ID, s.User, s.Method, s.Address, s.CreatedAt = uuid.Must(uuid.NewV7()).String(), user, method, address, s.RefreshedAt
	s.RefreshTime = RefreshTime
	switch use {
	case ForProgram:
		s.RefreshTime, s.EndsAt = ProgramRefreshTime, s.CreatedAt.Add(ProgramTime)
	case ForConsole:
		s.RefreshTime, s.EndsAt = ConsoleTime, s.CreatedAt.Add(ConsoleTime)
		s.AccessExpiresAt, tokens.ExpiresIn = s.EndsAt, ConsoleTime
	case ForPage:
	}
	s.RefreshExpiresAt = s.RefreshExpiry(s.CreatedAt)
	if err := c.store.SignIns.CreateSession(ctx, s); err != nil {
		return Tokens{}, fmt.Errorf("record session of %s: %w", user, err)
	}
	if c.cfg.SignedIn != nil {
		c.cfg.SignedIn(user)
	}
	tokens.RefreshesIn = s.RefreshTime
	e := audit.FromContext(ctx)
	e.By(audit.Actor{User: user, Session: s.ID})
	e.Detail("method", method)
	return tokens, nil
}

func newTokens() (Tokens, account.Session) {
	now := time.Now().UTC()
	t := Tokens{Access: secret(prefixAccess), Refresh: secret(prefixRefresh), ExpiresIn: AccessTime}
	return t, account.Session{Access: Hash(t.Access), AccessExpiresAt: now.Add(AccessTime), Refresh: Hash(t.Refresh), RefreshedAt: now}
}

// Refresh exchanges the refresh token of a session for new tokens. Using a refresh token a second
// time ends the session, because one of its two users must have stolen it; the exception is a
// second use within [account.RefreshGrace] while the tokens of the first exchange are unused,
// because the answer to it may have been lost.
//
// Errors: Unauthenticated for a token that is unknown, expired or used; QuotaExceeded instead after
// too many failures of the address.
func (c *Accounts) Refresh(ctx context.Context, refresh, remote string) (Tokens, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the refresh token is unknown, expired or was used; sign in again")
	_, group := audit.Client(remote)
	if !formed(refresh, prefixRefresh) {
		return Tokens{}, wrong
	}
	tokens, next := newTokens()
	var was account.Session
	err := c.attempts.addresses.lookUp(ctx, group, func() (err error) {
		was, err = c.store.SignIns.RotateSession(ctx, Hash(refresh), next)
		return err
	})
	if was.ID != "" { // otherwise guesses by strangers would keep the lookups of others out of the cache
		c.auth.forgetToken(was.Access)
	}
	e := audit.FromContext(ctx)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		if was.ID != "" {
			e.Object("session", was.ID, "")
			e.Detail("refresh_token", "used before; the session has ended")
		}
		return Tokens{}, wrong
	}
	if err != nil {
		return Tokens{}, fmt.Errorf("refresh session: %w", err)
	}
	e.By(audit.Actor{User: was.User, Session: was.ID})
	tokens.RefreshesIn = was.RefreshExpiry(next.RefreshedAt).Sub(next.RefreshedAt)
	return tokens, nil
}

// Logout ends the identity's session with its access and refresh tokens. API tokens made in the
// session keep working. Errors: Invalid for an API token, which has no session.
func (c *Accounts) Logout(ctx context.Context, id Identity) error {
	if id.Session == "" {
		return sandbox.Errorf(sandbox.Invalid, "an API token has no session; revoke it instead")
	}
	err := c.EndSession(ctx, id, id.Session)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil // it has ended at the same moment
	}
	return err
}

// Sessions returns the sessions of the identity's user, the newest first: at most 1000.
func (c *Accounts) Sessions(ctx context.Context, id Identity) ([]account.Session, error) {
	return c.store.SignIns.Sessions(ctx, id.User, time.Now())
}

// EndSession ends a session of the identity's user. Its tokens stop working immediately. Errors:
// NotFound when the user has no such session.
func (c *Accounts) EndSession(ctx context.Context, id Identity, session string) error {
	audit.FromContext(ctx).Object("session", session, "")
	if err := c.store.SignIns.DeleteSession(ctx, id.User, session); err != nil {
		return fmt.Errorf("end session %s: %w", session, err)
	}
	c.auth.forget()
	return nil
}

// EndSessions ends all sessions of the identity's user, including the identity's own. Their tokens
// stop working immediately; API tokens keep working. Idempotent.
func (c *Accounts) EndSessions(ctx context.Context, id Identity) error {
	audit.FromContext(ctx).Object("user", string(id.User), "")
	if err := c.store.SignIns.DeleteSessions(ctx, id.User); err != nil {
		return fmt.Errorf("end sessions of user %s: %w", id.User, err)
	}
	c.auth.forget()
	return nil
}
