package console

import (
	"net/http"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// apiPolicy is the content security policy of answers that are not the console's files. They hold
// data that sandboxes have made: a browser must not show them as pages.
const apiPolicy = "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// protect sets the headers of every answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", apiPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")   // window.opener of other origins is null
	h.Set("Cross-Origin-Resource-Policy", "same-origin") // no other origin can embed it
	h.Set("Origin-Agent-Cluster", "?1")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}

// own passes on the requests that scripts of the console's own pages make, or its links to
// sign-ins, and refuses all others, whatever they carry.
func (c *Console) own(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.isOwn(r) {
			edge.Error(w, r, sandbox.Errorf(sandbox.Forbidden, "only pages of the console may make this request; programs use the URL of the server with a token"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwn reports whether a page of the console made the request. Browsers that keep the console's
// cookie say so in Sec-Fetch-Site, and for WebSockets in Origin; scripts can set neither.
func (c *Console) isOwn(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site != "" && site != "same-origin" || origin != "" && origin != c.scheme+"://"+r.Host {
		return false
	}
	return site != "" || origin != ""
}
