package egress

import (
	"fmt"
	"net/netip"

	"github.com/modbox/modbox/internal/netguard"
)

// closure determines which addresses are closed: all that are not globally reachable, the addresses
// of the host, and public addresses of metadata services of clouds.
type closure struct {
	allow []netip.Prefix
}

// check returns nil for an open address, and an error that wraps [errClosed] for a closed address.
// Every address other than plain IPv4 is closed, which includes all forms in which IPv6 embeds an
// IPv4 address.
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
	if r, closed := netguard.Find(addr); closed {
		return fmt.Errorf("%s is in %s: %w", addr, r.Prefix, errClosed)
	}
	own, err := netguard.IsHost(addr)
	if err != nil {
		return fmt.Errorf("route to %s: %w", addr, err)
	}
	if own {
		return fmt.Errorf("%s is an address of the host: %w", addr, errClosed)
	}
	return nil
}
