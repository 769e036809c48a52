package base

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/statedir"
)

// localServer returns the URL and the first token of the server that runs on this user's state
// directory; the URL is "" if no server runs.
func (env *Env) localServer() (server, token string) {
	cfg, err := config.Load(config.Source{Environ: env.Environ})
	if err != nil {
		return "", ""
	}
	address := statedir.RunningAddress(cfg.StateDir)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if cfg.TLS.On() {
		scheme = "https"
	}
	data, _ := os.ReadFile(filepath.Join(cfg.StateDir, statedir.TokenFile)) // without a readable token the server refuses the request
	return scheme + "://" + net.JoinHostPort(host, port), strings.TrimSpace(string(data))
}

// isSameServer reports whether two URLs are the same, or lead to the same port of this machine.
func isSameServer(one, other string) bool {
	u, err := url.Parse(one)
	v, otherErr := url.Parse(other)
	if err != nil || otherErr != nil {
		return false
	}
	sameHost := u.Hostname() == v.Hostname() || OnThisMachine(one) && OnThisMachine(other)
	return u.Scheme == v.Scheme && u.Port() == v.Port() && sameHost
}
