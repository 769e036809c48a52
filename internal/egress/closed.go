package egress

import (
	"fmt"
	"net/netip"

	"github.com/modbox/modbox/internal/netguard"
)

// closure says which addresses are closed: everything that is not globally
// reachable, the addresses of the host, and public addresses behind which clouds
// have their metadata services.
type closure struct {
	allow []netip.Prefix
}

// check returns nil for an open address and [errClosed], wrapped, for a closed
// one. Every address that is not plain IPv4 is closed, which includes every way to
// write an IPv4 address as an IPv6 address.
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
		return fmt.Errorf("%s is the host's: %w", addr, errClosed)
	}
	return nil
}
