package remote

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

// reach decides which addresses the client connects to. It is safe for concurrent use.
type reach struct {
	listed     []string // hosts, or hosts with port, that the operator listed
	publicOnly bool
	open       http.RoundTripper // to listed hosts, and through a proxy
	guarded    http.RoundTripper // to all other hosts
}

func newReach(opts Options) *reach {
	r := &reach{listed: opts.InsecureRegistries, publicOnly: opts.PublicOnly}
	r.open = dialing(http.ProxyFromEnvironment, checkListed)
	r.guarded = dialing(nil, r.checkUnlisted)
	return r
}

// dialing returns a transport that connects only to addresses for which check returns nil.
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
func (r *reach) RoundTrip(req *http.Request) (*http.Response, error) {
	through, err := r.to(req)
	var resp *http.Response
	if err == nil {
		resp, err = through.RoundTrip(req)
	}
	for _, why := range refusals {
		if errors.Is(err, why) {
			return nil, fmt.Errorf("%s %w", req.URL.Host, why)
		}
	}
	return resp, err
}

// to returns the transport for a request.
func (r *reach) to(req *http.Request) (http.RoundTripper, error) {
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
	// The proxy resolves names, and decides which addresses it connects to.
	return r.open, r.checkLiteral(req.URL.Hostname())
}

// isListed reports whether the operator listed a host, which may have a port.
func (r *reach) isListed(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return slices.Contains(r.listed, host) || slices.Contains(r.listed, name)
}

// checkLiteral refuses a host that is the text of a closed address. Some resolvers also accept
// short forms such as 127.1.
func (r *reach) checkLiteral(host string) error {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return r.checkUnlisted(ip)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil {
		return errNever
	}
	// A resolver may turn letters and digits of other scripts into ASCII.
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return errNever
	}
	if last == "localhost" {
		return errOwn
	}
	return nil
}

// The reasons to refuse a host, as the end of a sentence about it.
var (
	errNever    = errors.New("is not where a registry may be")
	errOwn      = errors.New("is the server's own machine; the setting images.insecure_registries can allow a registry there")
	errPrivate  = errors.New("has a private address, and the setting images.private_registries closes those; images.insecure_registries can allow a registry there")
	errReserved = errors.New("has an address that is reserved; the setting images.insecure_registries can allow a registry there")
	errPlain    = errors.New("must not be asked by plain http; the setting images.insecure_registries can allow it")
)

// refusals are all reasons.
var refusals = []error{errNever, errOwn, errPrivate, errReserved, errPlain}

// checkListed returns nil for an address at which a registry that the operator listed may be.
func checkListed(ip netip.Addr) error {
	if r, closed := netguard.Find(ip); closed && r.Kind == netguard.Unusable {
		return errNever
	}
	return nil
}

// checkUnlisted returns nil for an address at which any other registry may be.
func (r *reach) checkUnlisted(ip netip.Addr) error {
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
