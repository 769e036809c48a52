package netguard

import (
	"net"
	"net/netip"
	"testing"
)

// closed has the first and the last address of each closed range, by kind. An
// address that is in a smaller closed range is not taken for the larger range.
var closed = map[Kind]map[string][]string{
	Loopback: {
		"127.0.0.0/8": {"127.0.0.0", "127.0.0.1", "127.255.255.255"},
		"::1/128":     {"::1"},
	},
	Private: {
		"10.0.0.0/8":     {"10.0.0.0", "10.255.255.255"},
		"100.64.0.0/10":  {"100.64.0.0", "100.127.255.255", "100.100.100.199", "100.100.100.201"},
		"172.16.0.0/12":  {"172.16.0.0", "172.31.255.255"},
		"192.168.0.0/16": {"192.168.0.0", "192.168.255.255"},
		"198.18.0.0/15":  {"198.18.0.0", "198.19.255.255"},
		"fc00::/7":       {"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"fec0::/10":      {"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	},
	Reserved: {
		"192.0.2.0/24":    {"192.0.2.0", "192.0.2.255"},
		"192.88.99.0/24":  {"192.88.99.0", "192.88.99.255"},
		"198.51.100.0/24": {"198.51.100.0", "198.51.100.255"},
		"203.0.113.0/24":  {"203.0.113.0", "203.0.113.255"},
		"240.0.0.0/4":     {"240.0.0.0", "255.255.255.254"},
		"100::/64":        {"100::", "100::ffff:ffff:ffff:ffff"},
		"2001::/32":       {"2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"},
		"2001:db8::/32":   {"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},
		"3fff::/20":       {"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"},
	},
	Unusable: {
		"0.0.0.0/8":          {"0.0.0.0", "0.255.255.255"},
		"100.100.100.200/32": {"100.100.100.200"},
		"168.63.129.16/32":   {"168.63.129.16"},
		"169.254.0.0/16":     {"169.254.0.0", "169.254.169.254", "169.254.255.255"},
		"192.0.0.0/24":       {"192.0.0.0", "192.0.0.192", "192.0.0.255"},
		"224.0.0.0/4":        {"224.0.0.0", "239.255.255.255"},
		"255.255.255.255/32": {"255.255.255.255"},
		"::/128":             {"::"},
		"fd00:ec2::/64":      {"fd00:ec2::", "fd00:ec2::254", "fd00:ec2:0:0:ffff:ffff:ffff:ffff"},
		"fd20:ce::/64":       {"fd20:ce::", "fd20:ce::254", "fd20:ce:0:0:ffff:ffff:ffff:ffff"},
		"fe80::/10":          {"fe80::", "fe80::1%eth0", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"ff00::/8":           {"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	},
}

func TestClosedRanges(t *testing.T) {
	tested := map[string]bool{}
	for kind, byPrefix := range closed {
		for prefix, addrs := range byPrefix {
			tested[prefix] = true
			for _, addr := range addrs {
				got, ok := Find(netip.MustParseAddr(addr))
				if !ok || got.Prefix.String() != prefix || got.Kind != kind || got.Use == "" {
					t.Errorf("Find(%s) = %+v, %t, want the %s range %s", addr, got, ok, kind, prefix)
				}
			}
		}
	}
	for i, r := range ranges {
		if !tested[r.Prefix.String()] {
			t.Errorf("no address of %s is tested", r.Prefix)
		}
		if r.Prefix != r.Prefix.Masked() {
			t.Errorf("%s has bits after its length", r.Prefix)
		}
		for _, later := range ranges[i+1:] {
			if r.Prefix.Bits() <= later.Prefix.Bits() && r.Prefix.Overlaps(later.Prefix) {
				t.Errorf("%s comes before %s, which is in it and is therefore never found", r.Prefix, later.Prefix)
			}
		}
	}
}

// TestAddressesThatStandForOthers covers the ways to write an IPv4 address as an
// IPv6 address.
func TestAddressesThatStandForOthers(t *testing.T) {
	for addr, want := range map[string]Kind{
		"::ffff:169.254.169.254": Unusable, "::ffff:127.0.0.1": Loopback, "::ffff:240.0.0.1": Reserved,
		"64:ff9b::a9fe:a9fe": Unusable, "64:ff9b::7f00:1": Loopback, "64:ff9b:1::a00:1": Private,
		"2002:a9fe:a9fe::": Unusable, "2002:7f00:1::1": Loopback, "2002:c000:201::": Reserved,
		"::ffff:8.8.8.8": "", "64:ff9b::808:808": "", "64:ff9b:1::808:808": "", "2002:808:808::1": "",
	} {
		if got, _ := Find(netip.MustParseAddr(addr)); got.Kind != want {
			t.Errorf("Find(%s) = %q, want %q", addr, got.Kind, want)
		}
	}
}

func TestOpenAddresses(t *testing.T) {
	for _, addr := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255",
		"192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700::1111", "2001:1::1", "2001:4860:4860::8888", "2001:db9::", "3fff:1000::", "fbff::", "100:0:0:1::", "fe00::",
	} {
		if got, closed := Find(netip.MustParseAddr(addr)); closed {
			t.Errorf("Find(%s) = %+v, want an open address", addr, got)
		}
	}
}

func TestIsHost(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"} {
		if own, err := IsHost(netip.MustParseAddr(addr)); !own || err != nil {
			t.Errorf("IsHost(%s) = %t, %v, want true", addr, own, err)
		}
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if own, err := IsHost(p.Addr()); !own || err != nil {
			t.Errorf("IsHost(%s), an address of an interface, = %t, %v, want true", p.Addr(), own, err)
		}
	}
	if own, _ := IsHost(netip.MustParseAddr("1.1.1.1")); own { // a machine without a route returns an error
		t.Error("IsHost(1.1.1.1) = true, want false")
	}
}
