package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// maxBody is the size of the body of a sign-in.
const maxBody = 16 << 10

// decode reads a JSON body. Errors: Invalid, naming the field; TooLarge.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return route.BodyError(err)
	}
	return nil
}

// signIn is POST /session: by name, or e-mail address, and password.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Username string `json:"username"`
		Password string `json:"password"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	tokens, err := c.deps.Accounts.Login(r.Context(), in.Username, in.Password, r.RemoteAddr, auth.ForConsole)
	if err != nil {
		return err
	}
	keep(w, tokens.Access, tokens.ExpiresIn)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// accept is POST /session/code: by the code of an invitation, or of a new or reset password. It makes the user,
// or sets the password of the user that the code is for.
func (c *Console) accept(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Code     string `json:"code"`
		Name     string `json:"name"`
		Password string `json:"password"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	tokens, err := c.deps.Accounts.Accept(r.Context(), in.Code, in.Name, in.Password, r.RemoteAddr, auth.ForConsole)
	if err != nil {
		return err
	}
	keep(w, tokens.Access, tokens.ExpiresIn)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// signInByToken is POST /session/token: by an API token, with its permissions. The token itself is
// unchanged by that, and by the end of the session in this browser.
func (c *Console) signInByToken(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Token string `json:"token"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	token := strings.TrimSpace(in.Token)
	if !strings.HasPrefix(token, auth.Prefix) {
		return sandbox.InvalidField("token", "is not an API token, which begins with %s", auth.Prefix)
	}
	id, err := c.identity(r, token)
	if err != nil {
		return err
	}
	e := audit.FromContext(r.Context())
	e.By(id.Actor())
	e.Detail("method", "token")
	keep(w, token, auth.ConsoleTime)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// signOut is DELETE /session: it ends the session, and removes the cookie in any case. An API token
// goes on working.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) error {
	if token := sessionToken(r); token != "" {
		id, err := c.identity(r, token)
		audit.FromContext(r.Context()).By(id.Actor())
		if err == nil && id.Session != "" {
			err = c.deps.Accounts.Logout(r.Context(), id)
		}
		if err != nil && sandbox.CodeOf(err) != sandbox.Unauthenticated { // otherwise it has ended
			return err
		}
	}
	forget(w)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// identity returns the identity that a token gives the sender of the request.
func (c *Console) identity(r *http.Request, token string) (auth.Identity, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del(auth.WorkspaceHeader)
	return c.deps.Auth.Authenticate(r)
}
