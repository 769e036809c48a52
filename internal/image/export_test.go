package image

import "net/netip"

// CheckListed returns why a registry that the operator listed must not be at an
// address, and CheckUnlisted why any other registry must not be.
func CheckListed(ip netip.Addr) error { return usable(ip) }

func CheckUnlisted(ip netip.Addr, publicOnly bool) error {
	return (&roads{publicOnly: publicOnly}).public(ip)
}
