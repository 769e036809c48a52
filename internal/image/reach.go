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

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Which registries the server asks is for its users to say, and where a registry
// sends the server on to (for tokens, by redirects) is for anybody to say. None of
// them may make it talk to the services of its own machine or to a cloud's metadata,
// and, where the operator wants that, to its own network. A name says nothing about
// where it leads, so what counts is the address that is about to be connected to.

// neverRanges are addresses where no registry is: of the link, of groups, of this
// network, and those behind which clouds keep metadata.
var neverRanges = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("fd00:ec2::/64"),
	netip.MustParsePrefix("fd20:ce::/64"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// privateRanges are those that [Options.PublicOnly] closes.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

// Addresses that are ways to IPv4 ones: nat64, which networks without IPv4 translate,
// and the range that they may use among themselves, end with them; those of 6to4 have
// them behind its own 16 bits.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// roads is how registries are reached. Safe for concurrent use.
type roads struct {
	listed     []string // hosts, or hosts with port, that the operator allowed
	publicOnly bool
	open       http.RoundTripper // to what is listed, and through a proxy
	guarded    http.RoundTripper // to everything else
}

func newRoads(opts Options) *roads {
	r := &roads{listed: opts.InsecureRegistries, publicOnly: opts.PublicOnly}
	r.open = dialing(http.ProxyFromEnvironment, notNever)
	r.guarded = dialing(nil, r.notOurs)
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
	for _, why := range []error{errNever, errOwn, errPrivate, errPlain} {
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
		return r.notOurs(ip)
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
	errNever   = errors.New("is not where a registry may be")
	errOwn     = errors.New("is the server's own machine; the setting images.insecure_registries can allow a registry there")
	errPrivate = errors.New("has a private address, and the setting images.private_registries closes those; images.insecure_registries can allow a registry there")
	errPlain   = errors.New("must not be asked by plain http; the setting images.insecure_registries can allow it")
)

// notNever lets addresses pass that may be those of a registry at all.
func notNever(ip netip.Addr) error {
	if within(neverRanges, ip) {
		return errNever
	}
	return nil
}

// notOurs lets addresses pass that are not this machine's and not closed.
func (r *roads) notOurs(ip netip.Addr) error {
	if err := notNever(ip); err != nil {
		return err
	}
	if r.publicOnly && within(privateRanges, ip) {
		return errPrivate
	}
	own, err := isOwn(plain(ip))
	if err != nil {
		return fmt.Errorf("route to %s: %w", ip, err)
	}
	if at := ip.WithZone("").Unmap(); !own && at != plain(ip) {
		own, _ = isOwn(at) // to what it has no route it does not get either
	}
	if own {
		return errOwn
	}
	return nil
}

func within(ranges []netip.Prefix, ip netip.Addr) bool {
	ip = plain(ip)
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// plain returns an address as it is when it is not written as another one.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.WithZone("").Unmap()
	b := ip.As16()
	switch {
	case nat64.Contains(ip), nat64Local.Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}

// isOwn asks the kernel, each time anew, whether this machine itself answers at an
// address. Unlike a list of its interfaces' addresses the kernel's table has whole
// networks that are routed to it, too.
func isOwn(ip netip.Addr) (bool, error) {
	if ip.IsLoopback() {
		return true, nil
	}
	routes, err := netlink.RouteGet(ip.AsSlice())
	return err == nil && slices.ContainsFunc(routes, func(to netlink.Route) bool { return to.Type != unix.RTN_UNICAST }), err
}
