package proxy

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// PathPrefix begins the path form of sandbox URLs.
const PathPrefix = "/s/"

// localDomain is the base domain of sandbox URLs on a server that is reached at a loopback
// address. Browsers resolve each name beneath it to their own machine (RFC 6761, section 6.3); most
// other programs do not.
const localDomain = "localhost"

// portSeparator stands between port and label; sandbox.HostLabel never makes one.
const portSeparator = "--"

// Target is the sandbox or port that a URL names.
type Target struct {
	// Label is the sandbox's host label, or the label of a published port.
	Label string
	// Published is whether Label is the label of a published port: it leads to this port
	// and to nothing else.
	Published bool
	// Port is the port asked for beside a host label; 0 is the sandbox's own.
	Port uint16
	// Prefix is the part of the path that named the target, without a slash at its
	// end; "" in host form.
	Prefix string
}

// URLs makes and reads the URLs of sandboxes. It is a value without state.
type URLs struct {
	domain string // lower case, without port; "" for none
	public url.URL
	local  bool // whether sandboxes have hosts beneath localDomain, beside paths
}

// NewURLs returns the URLs for a server that is reached at publicURL, e.g.
// "https://modbox.example.com" or "http://127.0.0.1:8080". With a base domain,
// sandboxes have hosts of their own beneath it, with scheme and port of
// publicURL; without, they have paths of publicURL. If the host of such a publicURL
// is a loopback address, they have hosts beneath "localhost" too, for browsers.
func NewURLs(publicURL, domain string) (URLs, error) {
	u, err := url.Parse(publicURL)
	if err != nil {
		return URLs{}, fmt.Errorf("public URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return URLs{}, fmt.Errorf("public URL %q must be http:// or https:// with a host, and nothing after it", publicURL)
	}
	domain = strings.Trim(strings.ToLower(domain), ".")
	for label := range strings.SplitSeq(domain, ".") {
		if domain != "" && !validLabel(label) {
			return URLs{}, fmt.Errorf("base domain %q is not a domain", domain)
		}
	}
	local := domain == "" && u.Scheme == "http" && isLoopback(u.Hostname())
	return URLs{domain: domain, public: url.URL{Scheme: u.Scheme, Host: u.Host}, local: local}, nil
}

// Sandbox returns the URL for a host label, or for the label of a published port,
// without a slash at its end.
func (u URLs) Sandbox(label string) string {
	if u.domain == "" {
		return u.public.Scheme + "://" + u.public.Host + PathPrefix + label
	}
	host := label + "." + u.domain
	if port := u.public.Port(); port != "" {
		host += ":" + port
	}
	return u.public.Scheme + "://" + host
}

// isLoopback reports whether a host, without a port, is this machine for its own programs.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, localDomain) || ip != nil && ip.IsLoopback()
}

// Local returns the URL in host form for a request in path form to a loopback address; ok is
// false if there is none. A page in host form has an origin of its own: its cookies and absolute
// links work.
func (u URLs) Local(r *http.Request, t Target) (location string, ok bool) {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, ""
	}
	if !u.local || t.Prefix == "" || !isLoopback(strings.Trim(host, "[]")) {
		return "", false
	}
	host = strings.TrimPrefix(t.Prefix, PathPrefix) + "." + localDomain
	if port != "" {
		host += ":" + port
	}
	location = u.public.Scheme + "://" + host + cmp.Or(strings.TrimPrefix(r.URL.EscapedPath(), t.Prefix), "/")
	if r.URL.RawQuery != "" {
		location += "?" + r.URL.RawQuery
	}
	return location, true
}

// Pages returns a source expression for content security policies that matches all URLs in host form,
// "" if there are none.
func (u URLs) Pages() string {
	domain := u.domain
	if u.local {
		domain = localDomain
	}
	if domain == "" {
		return ""
	}
	source := u.public.Scheme + "://*." + domain
	if port := u.public.Port(); port != "" {
		source += ":" + port
	}
	return source
}

// Server returns the URL of the server itself, without a slash at its end.
func (u URLs) Server() string { return u.public.Scheme + "://" + u.public.Host }

// Scheme returns the scheme callers use: "http" or "https".
func (u URLs) Scheme() string { return u.public.Scheme }

// Parse reads the host and the escaped path of a request. ours is false when it
// is not for a sandbox but for the server itself. ok is false when it is for a
// sandbox but names none that can exist: such a request must not reach the
// server's own routes.
func (u URLs) Parse(host, escapedPath string) (t Target, ours, ok bool) {
	if name, found := u.hostName(host); found {
		t, ok = parseName(name)
		return t, true, ok
	}
	rest, found := strings.CutPrefix(escapedPath, PathPrefix)
	if !found {
		return Target{}, false, false
	}
	name, _, _ := strings.Cut(rest, "/")
	t, ok = parseName(name)
	t.Prefix = PathPrefix + name
	return t, true, ok
}

// hostName returns the labels before the base domain in host.
func (u URLs) hostName(host string) (string, bool) {
	domain := u.domain
	if u.local {
		domain = localDomain
	}
	if domain == "" {
		return "", false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return strings.CutSuffix(host, "."+domain)
}

// parseName reads "{label}" or "{port}--{label}", where the second label is a
// sandbox's: the label of a published port leads to no other port.
func parseName(name string) (Target, bool) {
	var t Target
	if digits, label, found := strings.Cut(name, portSeparator); found {
		port, err := strconv.ParseUint(digits, 10, 16)
		// One way to write each port: "080" and "+80" are none.
		if err != nil || port == 0 || strconv.FormatUint(port, 10) != digits {
			return Target{}, false
		}
		t.Port, name = uint16(port), label
	}
	if !validLabel(name) || strings.Contains(name, portSeparator) {
		return Target{}, false
	}
	t.Label, t.Published = name, sandbox.IsPortLabel(name)
	return t, t.Port == 0 || !t.Published
}

// validLabel reports whether s is a DNS label in lower case.
func validLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
