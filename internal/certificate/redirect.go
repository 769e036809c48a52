package certificate

import (
	"net"
	"net/http"
	"slices"
)

// secretHeaders carry tokens of clients.
var secretHeaders = []string{"Authorization", "X-Api-Key", "X-Access-Token", "X-Modbox-Token"}

// Redirect returns a handler that sends browsers from http to https, at a port; "" for the usual one.
// It refuses requests with a token or a body, and other requests than reads: what they carry was sent in clear text,
// and callers must notice.
func Redirect(port string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		secret := slices.ContainsFunc(secretHeaders, func(name string) bool { return r.Header.Get(name) != "" })
		if r.Method != http.MethodGet && r.Method != http.MethodHead || secret || r.ContentLength != 0 {
			http.Error(w, "this server is reached over https only", http.StatusForbidden)
			return
		}
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if port != "" {
			host = net.JoinHostPort(host, port)
		}
		http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect)
	})
}
