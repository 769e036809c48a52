package proxy

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/sandbox"
)

// untold are request headers that are not forwarded to sandboxes: credentials of ours, and headers
// that only a proxy may set.
var untold = []string{
	auth.WorkspaceHeader, TokenHeader, "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "X-Real-Ip",
	"Http2-Settings", "Proxy-Connection",
}

// requestID is the header by which a request is found in our log.
const requestID = "X-Request-Id"

// rewrite makes the request that the sandbox gets. ReverseProxy has taken the
// hop-by-hop headers and the forwarding headers of the caller out already.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	q := requestOf(r.In.Context())
	q.host = r.In.Host
	// Only the sandbox sees this host: the visitor's has chosen the sandbox already.
	r.Out.Host = cmp.Or(q.sb.Network.HostFor(q.target.Port), r.In.Host)
	r.Out.URL.Scheme, r.Out.URL.Host = q.server()
	r.Out.URL.RawQuery, _ = cutToken(r.In.URL.RawQuery) // otherwise as it is, however odd: nothing here reads it
	for _, name := range untold {
		r.Out.Header.Del(name)
	}
	withoutOurs(r.Out.Header)
	if q.target.Prefix != "" {
		r.Out.Header.Del("Cookie")
	}
	r.SetXForwarded()
	r.Out.Header.Set("X-Forwarded-Proto", cmp.Or(auth.ForwardedScheme(r.In.Context()), p.cfg.URLs.Scheme()))
	if q.target.Prefix != "" {
		r.Out.Header.Set("X-Forwarded-Prefix", q.target.Prefix)
	}
}

// server returns the scheme and the host by which the transport finds a connection to the port's server. Of
// the host, only the port is dialed. With TLS, the handshake asks for its name, unless it is an address: the
// settings of the sandbox give the name.
func (q *request) server() (scheme, host string) {
	name := "sandbox"
	if scheme = "http"; q.sb.Network.SpeaksHTTPS(q.target.Port) {
		scheme, name = "https", "127.0.0.1"
		if u := (url.URL{Host: q.sb.Network.HostFor(q.target.Port)}); u.Host != "" {
			name = u.Hostname()
		}
	}
	return scheme, net.JoinHostPort(name, strconv.Itoa(int(q.target.Port)))
}

// ownToken reports whether an Authorization header carries a token of ours,
// which is for the API and no business of a sandbox.
func ownToken(authorization string) bool {
	_, credentials, _ := strings.Cut(authorization, " ")
	credentials = strings.TrimSpace(credentials)
	return auth.IsBearer(credentials) || strings.HasPrefix(credentials, preview.LinkPrefix)
}

// modifyResponse takes out of an answer what reaches beyond its sandbox.
func (p *Proxy) modifyResponse(r *http.Response) error {
	q := requestOf(r.Request.Context())
	if r.StatusCode < http.StatusContinue {
		return fmt.Errorf("%d is no HTTP status", r.StatusCode)
	}
	if r.Header.Get(requestID) != "" {
		q.answer.Del(requestID) // the sandbox's own names the request better to its callers
	}
	r.Header.Del(ErrorHeader)
	clean(r.Header, q.target.Prefix)
	if r.Header.Get("Referrer-Policy") == "" {
		r.Header.Set("Referrer-Policy", "same-origin") // the URL is a secret, in host form its origin is
	}
	// Its server takes itself for another host, or for one of another scheme, than the visitor knows.
	elsewhere := q.sb.Network.RequestHost != "" || q.sb.Network.SpeaksHTTPS(q.target.Port)
	for _, name := range []string{"Location", "Content-Location"} {
		v := r.Header.Get(name)
		if v != "" && elsewhere {
			v = withoutHost(v, r.Request)
		}
		if v != "" && q.target.Prefix != "" {
			v = withPrefix(v, q.target.Prefix, q.host)
		}
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	return nil
}

// withoutHost makes a redirect to the host of the request that was answered relative to it.
func withoutHost(location string, r *http.Request) string {
	u, err := url.Parse(location)
	if err != nil || !leadsBack(u, r) {
		return location
	}
	_, rest, _ := strings.Cut(location, "//")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return "/" + strings.TrimLeft(rest[i:], `/\`) // which browsers read as the beginning of a host
	}
	return "/"
}

// leadsBack reports whether a redirect is to the host of the request that was answered. Its server may write
// the port of that host, its own port, or none, if the scheme implies the port.
func leadsBack(to *url.URL, r *http.Request) bool {
	host := url.URL{Host: r.Host}
	implied := map[string]string{"http": "80", "https": "443"}[cmp.Or(to.Scheme, r.URL.Scheme)]
	if implied == "" || to.Host == "" || !strings.EqualFold(to.Hostname(), host.Hostname()) {
		return false
	}
	port := cmp.Or(to.Port(), implied)
	return port == cmp.Or(host.Port(), implied) || port == r.URL.Port()
}

// narrowCookies takes the Domain out of cookies: a sandbox sets them for itself,
// not for its neighbours beneath the same domain.
func narrowCookies(h http.Header) {
	lines := h.Values("Set-Cookie")
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(strings.ToLower(l), "domain") }) {
		return
	}
	h.Del("Set-Cookie")
	for _, line := range lines {
		if c, err := http.ParseSetCookie(line); err == nil {
			c.Domain = ""
			h.Add("Set-Cookie", c.String())
		}
	}
}

// withPrefix makes a redirect within the sandbox stay there: its server knows
// nothing of the prefix.
func withPrefix(location, prefix, host string) string {
	u, err := url.Parse(location)
	if err != nil || (u.Host != "" && u.Host != host) || !strings.HasPrefix(u.Path, "/") {
		return location
	}
	if u.Path == prefix || strings.HasPrefix(u.Path, prefix+"/") {
		return location
	}
	if u.RawPath != "" {
		u.RawPath = prefix + u.RawPath
	}
	u.Path = prefix + u.Path
	return u.String()
}

func upgrading(r *http.Request) bool { return len(r.Header.Values("Upgrade")) > 0 }

// checkUpgrade lets only WebSockets through, see the package comment.
func checkUpgrade(r *http.Request) error {
	if r.Method == http.MethodConnect {
		return sandbox.Errorf(sandbox.Unsupported, "CONNECT is not supported")
	}
	if v := r.Header.Values("Upgrade"); len(v) > 1 || (len(v) == 1 && !strings.EqualFold(v[0], "websocket")) {
		return sandbox.Errorf(sandbox.Unsupported, "connections can only be upgraded to WebSocket")
	}
	return nil
}

func portOf(addr string) uint16 {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(port, 10, 16) // made by rewrite
	return uint16(n)
}
