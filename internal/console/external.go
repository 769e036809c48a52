package console

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	callbackPath = "/session/callback"
	// externalTime bounds a sign-in at another service, from its beginning to the callback.
	externalTime = 10 * time.Minute
)

// Callback returns the URL at which the console at a URL gets the codes of sign-ins through other
// services; "" for "".
func Callback(at string) string {
	if at == "" {
		return ""
	}
	return at + callbackPath
}

// beginExternal is GET /session/providers/{provider}: it sends the browser to the server, which sends
// it to the provider. The cookie holds what only this browser knows: the verifier of the code, and
// the state.
func (c *Console) beginExternal(w http.ResponseWriter, r *http.Request) error {
	verifier, state := oauth2.GenerateVerifier(), rand.Text()
	c.keepExternal(w, verifier+"."+state, externalTime)
	q := url.Values{
		"redirect": {Callback(c.url)}, "state": {state},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"},
	}
	http.Redirect(w, r, c.deps.Server+"/auth/sso/"+url.PathEscape(r.PathValue("provider"))+"?"+q.Encode(), http.StatusFound)
	return nil
}

// endExternal is GET /session/callback: the browser comes back with a code, or with an error. A failure is
// shown by the console's page, which knows its code only: the rest of the query might be anybody's text.
func (c *Console) endExternal(w http.ResponseWriter, r *http.Request) error {
	c.keepExternal(w, "", -time.Second)
	tokens, err := c.exchange(r)
	if err != nil {
		var public *sandbox.Error
		if !errors.As(err, &public) || errors.As(err, new(sandbox.Elsewhere)) {
			return err
		}
		http.Redirect(w, r, "/?sign_in="+url.QueryEscape(string(public.Code)), http.StatusSeeOther)
		return nil
	}
	keep(w, tokens.Access, tokens.ExpiresIn)
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// exchange begins the session that the query's code is for. Errors: Unauthenticated; Forbidden when the server
// refused the user.
func (c *Console) exchange(r *http.Request) (auth.Tokens, error) {
	q := r.URL.Query()
	cookie, err := r.Cookie(externalCookie)
	if err != nil {
		return auth.Tokens{}, sandbox.Wrap(sandbox.Unauthenticated, err, "this browser began no sign-in")
	}
	verifier, state, _ := strings.Cut(cookie.Value, ".")
	if state == "" || subtle.ConstantTimeCompare([]byte(state), []byte(q.Get("state"))) != 1 {
		return auth.Tokens{}, sandbox.Errorf(sandbox.Unauthenticated, "this browser began another sign-in")
	}
	if q.Get("error") == string(sandbox.Forbidden) {
		return auth.Tokens{}, sandbox.Errorf(sandbox.Forbidden, "the account may not sign in here")
	}
	return c.deps.SSO.Exchange(r.Context(), q.Get("code"), verifier, r.RemoteAddr, auth.ForConsole)
}

// keepExternal sets the cookie of a sign-in under way. It must come along when another site sends
// the browser back.
func (c *Console) keepExternal(w http.ResponseWriter, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: externalCookie, Value: value, Path: "/", MaxAge: int(lifetime / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
