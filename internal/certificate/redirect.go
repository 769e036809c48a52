package certificate

import (
	"net"
	"net/http"
)

// Redirect returns a handler that sends browsers from http to https, at a port; "" for the usual one.
// It refuses other requests than reads: their tokens were sent in clear text, and callers must notice.
func Redirect(port string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Authorization") != "" {
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
