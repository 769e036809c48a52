package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// Account has the calls for the client's user: sign-in, sessions and the password.
type Account struct{ *transport }

// SignIn is the tokens of a session. [Client.WithToken] makes a client of the access token.
type SignIn = wire.SessionTokens

// SignInSession is an active sign-in, without its tokens.
type SignInSession = wire.SignInSession

// Login signs in by name, or e-mail address, and password; the client needs no
// token. Errors: Unauthenticated; QuotaExceeded after too many failures.
func (c *Account) Login(ctx context.Context, name, password string) (*SignIn, error) {
	return c.login(ctx, name, password, false)
}

// LoginProgram is Login for a program on the user's machine: the session lasts 90 days, and ends
// after 30 days without a refresh.
func (c *Account) LoginProgram(ctx context.Context, name, password string) (*SignIn, error) {
	return c.login(ctx, name, password, true)
}

func (c *Account) login(ctx context.Context, name, password string, program bool) (*SignIn, error) {
	body := wire.Login{Username: name, Password: password, Program: program}
	return fetch[SignIn](ctx, c.transport, request{method: http.MethodPost, path: "/v1/auth/login", body: body})
}

// Refresh returns the next tokens of a session. Errors: Unauthenticated.
func (c *Account) Refresh(ctx context.Context, refreshToken string) (*SignIn, error) {
	body := wire.Refresh{RefreshToken: refreshToken}
	return fetch[SignIn](ctx, c.transport, request{method: http.MethodPost, path: "/v1/auth/refresh", body: body})
}

// Providers lists the services that people may sign in with; the client needs no token.
func (c *Account) Providers() *List[string] {
	return newList[string](c.transport, "/v1/auth/providers", nil)
}

// SignInURL is the URL at which a browser begins to sign in to one of the Providers for a program.
// It ends at redirect, http://127.0.0.1:PORT/…, with a code and the state in the query; with
// redirect "" it shows the code. verifier is a secret of the program of 43 to 128 letters and
// digits, new for each sign-in, with which Exchange proves that the code is the program's.
func (c *Account) SignInURL(provider, redirect, state, verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	q := url.Values{"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}
	if redirect != "" {
		q.Set("redirect", redirect)
		q.Set("state", state)
	}
	return c.base + "/auth/sso/" + url.PathEscape(provider) + "?" + q.Encode()
}

// Exchange begins a session with the code of a sign-in. Errors: Unauthenticated for a code that is
// unknown, expired, or was tried before.
func (c *Account) Exchange(ctx context.Context, code, verifier string) (*SignIn, error) {
	body := wire.ExchangeCode{Code: code, CodeVerifier: verifier}
	return fetch[SignIn](ctx, c.transport, request{method: http.MethodPost, path: "/v1/auth/exchange", body: body})
}

// AcceptInvitation uses a code up and signs in. A new user gets the name; a code that sets the
// password of an existing user ignores it. Errors: Unauthenticated for an invalid code; Exists for
// a name that is taken; Invalid.
func (c *Account) AcceptInvitation(ctx context.Context, code, name, password string) (*SignIn, error) {
	return c.acceptInvitation(ctx, code, name, password, false)
}

// AcceptInvitationProgram is AcceptInvitation for a program on the user's machine, see LoginProgram.
func (c *Account) AcceptInvitationProgram(ctx context.Context, code, name, password string) (*SignIn, error) {
	return c.acceptInvitation(ctx, code, name, password, true)
}

func (c *Account) acceptInvitation(ctx context.Context, code, name, password string, program bool) (*SignIn, error) {
	body := wire.AcceptInvitation{Code: code, Name: name, Password: password, Program: program}
	return fetch[SignIn](ctx, c.transport, request{method: http.MethodPost, path: "/v1/auth/accept", body: body})
}

// Logout ends the session whose access token the client has, with all its tokens; API
// tokens go on. Errors: Invalid for an API token.
func (c *Account) Logout(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodPost, path: "/v1/auth/logout"}, nil)
}

// Sessions lists the sessions of the client's user, the newest first.
func (c *Account) Sessions() *List[SignInSession] {
	return newList[SignInSession](c.transport, "/v1/account/sessions", nil)
}

// DeleteSession ends a session of the client's user; its tokens stop working at once. Errors: NotFound.
func (c *Account) DeleteSession(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/account/sessions/" + url.PathEscape(id)}, nil)
}

// DeleteSessions ends all sessions of the client's user, the client's own too; API tokens go on.
func (c *Account) DeleteSessions(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/account/sessions"}, nil)
}

// SetPassword changes the caller's password; current may be "" if the caller has none. All its
// sessions end but the client's own; API tokens go on. Errors: Forbidden for a wrong password;
// Invalid.
func (c *Account) SetPassword(ctx context.Context, current, password string) error {
	body := wire.SetPassword{Password: password, CurrentPassword: current}
	return c.call(ctx, request{method: http.MethodPut, path: "/v1/account/password", body: body}, nil)
}
