package main

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/config"
)

// runningAddress returns the address that the server of a state directory listens on, ""
// when none runs or this user may not know. Only the server's user can write there, so that
// nobody else can name an address; that of a server that was killed is not believed,
// because a stranger may listen there now.
func runningAddress(stateDir string) string {
	address, err := os.ReadFile(filepath.Join(stateDir, addressFile))
	if err != nil || !isLocked(filepath.Join(stateDir, lockFile)) {
		return ""
	}
	return strings.TrimSpace(string(address))
}

// isLocked reports whether a server has the lock at path. It tries the lock only while the
// process that is written there lives: that one has it, so that no starting server is in the way.
func isLocked(path string) bool {
	holder, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(holder), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // and unlocks
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// localServer returns the URL of the server of this user's state directory that runs on this
// machine, "" when there is none, and its first token.
func (a *app) localServer() (server, token string) {
	cfg, err := config.Load(config.Source{Environ: a.environ})
	if err != nil {
		return "", ""
	}
	address := runningAddress(cfg.StateDir)
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
	data, _ := os.ReadFile(filepath.Join(cfg.StateDir, tokenFile)) // unreadable: go without, the server will say so
	return scheme + "://" + net.JoinHostPort(host, port), strings.TrimSpace(string(data))
}

// isSameServer reports whether two URLs lead to the same port of this machine, or are the same.
func isSameServer(one, other string) bool {
	u, err := url.Parse(one)
	v, otherErr := url.Parse(other)
	if err != nil || otherErr != nil {
		return false
	}
	sameHost := u.Hostname() == v.Hostname() || onThisMachine(one) && onThisMachine(other)
	return u.Scheme == v.Scheme && u.Port() == v.Port() && sameHost
}
