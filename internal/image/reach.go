package image

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/netguard"
)

// Which registries the server asks is for its users to say, and where a registry
// sends the server on to (for tokens, by redirects) is for anybody to say. None of
// them may make it talk to the services of its own machine or to a cloud's metadata,
// and, where the operator wants that, to its own network. A name says nothing about
// where it leads, so what counts is the address that is about to be connected to.

// roads is how registries are reached. Safe for concurrent use.
type roads struct {
	listed     []string // hosts, or hosts with port, that the operator allowed
	publicOnly bool
	open       http.RoundTripper // to what is listed, and through a proxy
	guarded    http.RoundTripper // to everything else
}

func newRoads(opts Options) *roads {
	r := &roads{listed: opts.InsecureRegistries, publicOnly: opts.PublicOnly}
	r.open = dialing(http.ProxyFromEnvironment, usable)
	r.guarded = dialing(nil, r.public)
	return r
}

// dialing returns a transport that connects to addresses which check lets pass only.
func dialing(proxy func(*http.Request) (*url.URL, error), check func(netip.Addr) error) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return check(to.Addr())
	}}
	return &http.Transport{
		Proxy: proxy, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 8,
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true,
	}
}

// RoundTrip implements http.RoundTripper. Its errors name the host that is refused.
func (r *roads) RoundTrip(req *http.Request) (*http.Response, error) {
	road, err := r.to(req)
	var resp *http.Response
	if err == nil {
		resp, err = road.RoundTrip(req)
	}
	for _, why := range refusals {
		if errors.Is(err, why) {
			return nil, fmt.Errorf("%s %w", req.URL.Host, why)
		}
	}
	return resp, err
}

// to returns how what a request asks is reached.
func (r *roads) to(req *http.Request) (http.RoundTripper, error) {
	if r.isListed(req.URL.Host) {
		return r.open, nil
	}
	if req.URL.Scheme != "https" {
		return nil, errPlain
	}
	proxy, err := http.ProxyFromEnvironment(req)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return r.guarded, nil
	}
	// The proxy decides what a name means, and which addresses it connects to.
	return r.open, r.checkLiteral(req.URL.Hostname())
}

// isListed reports whether the operator named a host, which may have a port.
func (r *roads) isListed(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return slices.Contains(r.listed, host) || slices.Contains(r.listed, name)
}

// checkLiteral refuses a host that says by itself that it must not be reached. What
// only looks like an address, such as 127.1, is one to some resolvers.
func (r *roads) checkLiteral(host string) error {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return r.public(ip)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil {
		return errNever
	}
	// Letters and digits of other scripts may become these on the way.
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return errNever
	}
	if last == "localhost" {
		return errOwn
	}
	return nil
}

// Why a host is not asked, as the end of a sentence about it.
var (
	errNever    = errors.New("is not where a registry may be")
	errOwn      = errors.New("is the server's own machine; the setting images.insecure_registries can allow a registry there")
	errPrivate  = errors.New("has a private address, and the setting images.private_registries closes those; images.insecure_registries can allow a registry there")
	errReserved = errors.New("has an address that is reserved; the setting images.insecure_registries can allow a registry there")
	errPlain    = errors.New("must not be asked by plain http; the setting images.insecure_registries can allow it")
)

// refusals are all of them.
var refusals = []error{errNever, errOwn, errPrivate, errReserved, errPlain}

// usable accepts the addresses at which a registry may be that the operator listed.
func usable(ip netip.Addr) error {
	if r, closed := netguard.Find(ip); closed && r.Kind == netguard.Unusable {
		return errNever
	}
	return nil
}

// public accepts the addresses at which any other registry may be.
func (r *roads) public(ip netip.Addr) error {
	in, closed := netguard.Find(ip)
	switch {
	case closed && in.Kind == netguard.Unusable:
		return errNever
	case closed && in.Kind == netguard.Loopback:
		return errOwn
	case closed && in.Kind == netguard.Private && r.publicOnly:
		return errPrivate
	}
	own, err := netguard.IsHost(ip)
	switch {
	case own:
		return errOwn
	case closed && in.Kind == netguard.Reserved:
		return errReserved
	case err != nil:
		return fmt.Errorf("route to %s: %w", ip, err)
	}
	return nil
}
