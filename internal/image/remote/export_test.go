package remote

import "net/netip"

// CheckListed returns an error for an address at which a registry that the operator listed must
// not be, and CheckUnlisted for an address at which any other registry must not be.
func CheckListed(ip netip.Addr) error { return checkListed(ip) }

func CheckUnlisted(ip netip.Addr, publicOnly bool) error {
	return (&reach{publicOnly: publicOnly}).checkUnlisted(ip)
}
