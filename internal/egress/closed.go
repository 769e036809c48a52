package egress

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// closedRanges are the destinations no sandbox reaches, besides the host's own
// addresses: everything that is not globally reachable, and public addresses
// behind which clouds keep metadata.
var closedRanges = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network; 0.0.0.0 is the host itself
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by carriers; metadata of one cloud
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // host agent of one cloud
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, with the metadata service
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments; metadata of one cloud
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // relays to IPv6, given up
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/4"),      // multicast
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, and broadcast
}

// closure says which addresses are closed.
type closure struct {
	allow []netip.Prefix
	// local says whether the host itself answers at an address, now.
	local func(netip.Addr) (bool, error)
}

// check returns nil for an open address and [errClosed], wrapped, for a closed
// one. Whatever is not plain IPv4 is closed, which takes in every way to write
// an IPv4 address as an IPv6 one.
func (c closure) check(addr netip.Addr) error {
	if !addr.Is4() {
		return fmt.Errorf("%s is not an IPv4 address: %w", addr, errClosed)
	}
	if GuestPrefix.Contains(addr) {
		return fmt.Errorf("%s is on the sandbox's own link: %w", addr, errClosed)
	}
	for _, p := range c.allow {
		if p.Contains(addr) {
			return nil
		}
	}
	for _, p := range closedRanges {
		if p.Contains(addr) {
			return fmt.Errorf("%s is in %s: %w", addr, p, errClosed)
		}
	}
	local, err := c.local(addr)
	if err != nil {
		return fmt.Errorf("route to %s: %w", addr, err)
	}
	if local {
		return fmt.Errorf("%s is the host's: %w", addr, errClosed)
	}
	return nil
}

// hostAnswers asks the kernel's routing table, each time anew, whether the host
// itself takes packets to addr. Unlike a list of the interfaces' addresses this
// also knows whole networks routed to the host, and their broadcast addresses.
func hostAnswers(addr netip.Addr) (bool, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil {
		return false, err
	}
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST {
			return true, nil
		}
	}
	return false, nil
}
