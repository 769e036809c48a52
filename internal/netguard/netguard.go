// Package netguard holds the address ranges to which the server makes no
// connection for its users: the one list for sandboxes and for registries.
//
//	if r, closed := netguard.Find(addr); closed {
//		return fmt.Errorf("%s is in %s, %s", addr, r.Prefix, r.Use)
//	}
//	if own, err := netguard.IsHost(addr); own || err != nil { ... }
//
// A name says nothing about where it leads, so callers check the address right
// before they connect to it. The caller decides by [Kind] which ranges an operator
// can open.
package netguard

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kind says why a range is closed.
type Kind string

// The kinds.
const (
	// Loopback is the server's own machine.
	Loopback Kind = "loopback"
	// Private ranges are for networks of organisations and carriers.
	Private Kind = "private"
	// Reserved ranges are for documentation, for transitions that ended, or for
	// nothing yet. Some organisations use them as private ranges all the same.
	Reserved Kind = "reserved"
	// Unusable ranges have no server that an operator could mean: this network, the
	// link, multicast and broadcast. Clouds have their metadata services there.
	Unusable Kind = "unusable"
)

// Range is a closed range of addresses.
type Range struct {
	Prefix netip.Prefix
	Kind   Kind
	// Use describes the range in a few words.
	Use string
}

// ranges has a range before every other range that contains it.
var ranges = []Range{
	{netip.MustParsePrefix("0.0.0.0/8"), Unusable, "this network; 0.0.0.0 is the host itself"},
	{netip.MustParsePrefix("10.0.0.0/8"), Private, "private networks"},
	{netip.MustParsePrefix("100.100.100.200/32"), Unusable, "metadata of a cloud"},
	{netip.MustParsePrefix("100.64.0.0/10"), Private, "networks of carriers"},
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback, "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), Unusable, "the host agent of a cloud"},
	{netip.MustParsePrefix("169.254.0.0/16"), Unusable, "link-local addresses and metadata of clouds"},
	{netip.MustParsePrefix("172.16.0.0/12"), Private, "private networks"},
	{netip.MustParsePrefix("192.0.0.0/24"), Unusable, "protocol assignments and metadata of a cloud"},
	{netip.MustParsePrefix("192.0.2.0/24"), Reserved, "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), Reserved, "relays to IPv6, which are no longer in use"},
	{netip.MustParsePrefix("192.168.0.0/16"), Private, "private networks"},
	{netip.MustParsePrefix("198.18.0.0/15"), Private, "benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), Reserved, "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), Reserved, "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), Unusable, "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), Unusable, "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), Reserved, "future use"},

	{netip.MustParsePrefix("::/128"), Unusable, "no address; as a destination it is the host itself"},
	{netip.MustParsePrefix("::1/128"), Loopback, "loopback"},
	{netip.MustParsePrefix("100::/64"), Reserved, "packets to be discarded"},
	{netip.MustParsePrefix("2001::/32"), Reserved, "tunnels to IPv4 addresses"},
	{netip.MustParsePrefix("2001:db8::/32"), Reserved, "documentation"},
	{netip.MustParsePrefix("3fff::/20"), Reserved, "documentation"},
	{netip.MustParsePrefix("fd00:ec2::/64"), Unusable, "metadata of a cloud"},
	{netip.MustParsePrefix("fd20:ce::/64"), Unusable, "metadata of a cloud"},
	{netip.MustParsePrefix("fc00::/7"), Private, "private networks"},
	{netip.MustParsePrefix("fe80::/10"), Unusable, "link-local addresses"},
	{netip.MustParsePrefix("fec0::/10"), Private, "private networks, as they were once numbered"},
	{netip.MustParsePrefix("ff00::/8"), Unusable, "multicast"},
}

// Find returns the closed range that contains an address, the smallest of several.
// An IPv6 address that stands for an IPv4 address is in the range of the latter.
func Find(addr netip.Addr) (Range, bool) {
	addr = plain(addr)
	i := slices.IndexFunc(ranges, func(r Range) bool { return r.Prefix.Contains(addr) })
	if i < 0 {
		return Range{}, false
	}
	return ranges[i], true
}

// IPv6 addresses that stand for IPv4 addresses. Networks without IPv4 translate
// nat64, and nat64Local among themselves: both end with the IPv4 address. In 6to4
// it comes after the prefix.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// plain returns the IPv4 address for which an IPv6 address stands, or the address
// itself, without its zone.
func plain(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if addr.Is4() {
		return addr
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr), nat64Local.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return addr
}

// IsHost reports whether this machine itself answers at an address, or at the IPv4
// address for which it stands. It asks the kernel each time: unlike a list of the
// interfaces' addresses, the routing table also has whole networks that are routed
// to this machine, and their broadcast addresses.
//
// Errors: the kernel's, for example when there is no route to the address.
func IsHost(addr netip.Addr) (bool, error) {
	to := plain(addr)
	own, err := answers(to)
	if own || err != nil {
		return own, err
	}
	if addr = addr.WithZone("").Unmap(); addr != to {
		own, _ = answers(addr) // without a route to it, no connection to it is made either
	}
	return own, nil
}

func answers(addr netip.Addr) (bool, error) {
	if addr.IsLoopback() {
		return true, nil
	}
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type != unix.RTN_UNICAST }), nil
}
