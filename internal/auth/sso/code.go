package sso

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// codeTime is how long a program may take to exchange a code; a person may have to type it.
	codeTime = 5 * time.Minute
	codesMax = 10_000
	// challengeLength is the length of a SHA-256 in base64url (RFC 7636).
	challengeLength = 43
)

// grant has the sign-in and conditions that belong to a code.
type grant struct {
	user      sandbox.UserID
	provider  string
	challenge string
}

// challenge reads the PKCE challenge of a program; "" when the request has none.
func challenge(q url.Values) (string, error) {
	c := q.Get("code_challenge")
	sum, err := base64.RawURLEncoding.DecodeString(c)
	if c != "" && (err != nil || len(sum) != sha256.Size) {
		return "", sandbox.InvalidField("code_challenge", "must be a SHA-256 in base64url, which has %d characters", challengeLength)
	}
	if m := q.Get("code_challenge_method"); m != "" && m != "S256" {
		return "", sandbox.InvalidField("code_challenge_method", "must be S256")
	}
	return c, nil
}

// Exchange begins the session of the program, or of the console, that a code was issued for. It proves itself
// by the verifier that belongs to the challenge that began the flow (RFC 7636). A code can be used
// once, and a wrong verifier uses it up.
//
// Errors: Unauthenticated; Unavailable if another server signs in.
func (s *SignIn) Exchange(ctx context.Context, code, verifier, remote string, use auth.Use) (auth.Tokens, error) {
	if err := s.owner.CheckPrimary(); err != nil {
		return auth.Tokens{}, err
	}
	g, ok := s.codes.Take(code)
	sum := sha256.Sum256([]byte(verifier))
	proof := base64.RawURLEncoding.EncodeToString(sum[:])
	if !ok || subtle.ConstantTimeCompare([]byte(proof), []byte(g.challenge)) != 1 {
		return auth.Tokens{}, sandbox.Errorf(sandbox.Unauthenticated, "the code is unknown, expired or was used; sign in again")
	}
	return s.accounts.SignInRecognized(ctx, g.user, g.provider, remote, use)
}

// grantCode ends the flow of a program: it redirects the browser to the program with a code, or
// shows the code.
func (s *SignIn) grantCode(w http.ResponseWriter, f flow, user sandbox.UserID) error {
	code := unguessable()
	s.codes.Set(code, grant{user: user, provider: f.Provider, challenge: f.Challenge})
	if f.Redirect != "" {
		leave(w, f, url.Values{"code": {code}})
		return nil
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	if err := codePage.Execute(w, code); err != nil {
		return fmt.Errorf("write the page with a code: %w", err)
	}
	return nil
}

// refuse redirects the error to the program that waits for a code, if there is one; otherwise it
// returns the error, for the browser.
func refuse(ctx context.Context, w http.ResponseWriter, f flow, err error) error {
	var public *sandbox.Error
	if f.Challenge == "" || f.Redirect == "" || !errors.As(err, &public) {
		return err
	}
	audit.FromContext(ctx).Fail(public.Code)
	leave(w, f, url.Values{"error": {string(public.Code)}, "error_description": {public.Message}})
	return nil
}

// leave sends the browser to the program that began the flow.
func leave(w http.ResponseWriter, f flow, answer url.Values) {
	if len(f.State) > 0 {
		answer.Set("state", string(f.State))
	}
	separator := "?"
	if strings.Contains(f.Redirect, "?") {
		separator = "&"
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", f.Redirect+separator+answer.Encode())
	w.WriteHeader(http.StatusFound)
}

// codePage warns the user not to pass the code on: a person who has the code can sign in as the
// user.
var codePage = template.Must(template.New("code").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Modbox sign-in</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}code{display:block;padding:1rem;background:#eee;color:#111;overflow-wrap:anywhere;user-select:all}</style>
<h1>Nearly done</h1>
<p>Paste this code where you began to sign in:</p>
<code>{{.}}</code>
<p>It works once and for five minutes. If you did not begin this yourself, close the page, and give the code to nobody: the person who asked for it would act in your name.</p>
</html>
`))
