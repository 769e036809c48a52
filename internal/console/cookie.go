package console

import (
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/auth"
)

// Names of the cookies. With the prefix, browsers accept them only from this host over HTTPS, or on
// their own machine: no other host, and no page beneath the same domain, can set them.
const (
	sessionCookie  = "__Host-modbox-session"
	externalCookie = "__Host-modbox-sign-in"
)

// keep sets the cookie of a session that ends after a time.
func keep(w http.ResponseWriter, token string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: token, Path: "/", MaxAge: int(lifetime / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// forget removes the cookie of the session.
func forget(w http.ResponseWriter) { keep(w, "", -time.Second) }

// sessionToken returns the token in the request's cookie, or "".
func sessionToken(r *http.Request) string {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || !auth.IsBearer(cookie.Value) {
		return ""
	}
	return cookie.Value
}
