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

// localServer returns the URL of the server of this user's state directory that runs on this
// machine, "" when there is none, and its first token.
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
	if cfg.TLS.Cert != "" {
		scheme = "https"
	}
	data, _ := os.ReadFile(filepath.Join(cfg.StateDir, statedir.TokenFile)) // unreadable: go without, the server will say so
	return scheme + "://" + net.JoinHostPort(host, port), strings.TrimSpace(string(data))
}

// isSameServer reports whether two URLs lead to the same port of this machine, or are the same.
func isSameServer(one, other string) bool {
	u, err := url.Parse(one)
	v, otherErr := url.Parse(other)
	if err != nil || otherErr != nil {
		return false
	}
	sameHost := u.Hostname() == v.Hostname() || OnThisMachine(one) && OnThisMachine(other)
	return u.Scheme == v.Scheme && u.Port() == v.Port() && sameHost
}
