package egress

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
)

// The addresses in every sandbox. They are valid only on its own link.
var (
	// GuestPrefix is the sandbox's address and network.
	GuestPrefix = netip.MustParsePrefix("10.0.0.2/24")
	// GatewayAddr is the default route and the DNS server, which a sandbox's /etc/resolv.conf must
	// name.
	GatewayAddr = netip.MustParseAddr("10.0.0.1")

	guestMAC   = net.HardwareAddr{0x02, 0x6d, 0x62, 0x78, 0x00, 0x02}
	gatewayMAC = net.HardwareAddr{0x02, 0x6d, 0x62, 0x78, 0x00, 0x01}
)

// MTU of a sandbox's interface in bytes, without the Ethernet header. With large frames the gateway
// processes fewer of them; outside, the host's own MTU applies.
const MTU = 32000

// NIC is the interface to give to a sandbox. The fields mean the same as in the driver's type of
// that name.
//
// Neither side computes or verifies TCP and UDP checksums, because a socket pair neither loses nor
// damages data: the sandbox's side must be configured the same way, and without segmentation
// offload, since frames are no longer than MTU.
type NIC struct {
	// File is the sandbox's end of the socket pair; the receiver of the NIC closes it.
	File            *os.File
	MAC, GatewayMAC net.HardwareAddr
	Address         netip.Prefix
	Gateway         netip.Addr
	MTU             int
}

// Config determines what sandboxes may reach and how many resources of the host they may use. The
// zero value is usable once Log is set.
type Config struct {
	// Log receives refused flows (debug) and faults (error). Required.
	Log *slog.Logger
	// Policy decides about flows to open destinations; nil allows them.
	Policy Policy
	// AllowCIDRs opens ranges that are otherwise closed, e.g. for an internal mirror. It also opens
	// the host's own addresses in them. IPv4 only.
	AllowCIDRs []netip.Prefix
	// Resolvers answer the gateways' questions; empty means the resolvers in the host's
	// /etc/resolv.conf, which is read again when it changes.
	Resolvers []netip.AddrPort

	// MaxFlows is the maximum number of concurrent connections and UDP flows of a sandbox; 0 means
	// 512. MaxTotalFlows is the maximum of all sandboxes together; 0 means 8192, or half of this
	// process's limit of open files if that is less.
	MaxFlows, MaxTotalFlows int
	// BufferBytes and MaxTotalBufferBytes bound the memory for data in transit beyond 64 KiB for
	// each flow, of each sandbox and of all together; 0 means 96 MiB and 512 MiB. When it gets
	// scarce, new connections get smaller buffers. A connection that only a name allows uses up to
	// 36 KiB more until its beginning is read.
	BufferBytes, MaxTotalBufferBytes int64
}

// Network makes gateways for sandboxes. It is safe for concurrent use. It needs no closing; its
// gateways do.
type Network struct {
	log      *slog.Logger
	policy   Policy
	closure  closure
	resolver *resolver
	total    budget
	perBox   budgetSize
	gateways gateways
	// dnsIdle and pingTimeout are the constants of those names, except in tests.
	dnsIdle, pingTimeout time.Duration
	// connect opens the host's sockets; tests redirect it to their servers.
	connect func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error)
}

type budgetSize struct {
	flows int
	extra int64
}

// New makes a network. Errors: Invalid, naming the field.
func New(cfg Config) (*Network, error) {
	if cfg.Log == nil {
		return nil, sandbox.InvalidField("log", "must be set")
	}
	for i, p := range cfg.AllowCIDRs {
		if !p.IsValid() || !p.Addr().Is4() {
			return nil, sandbox.InvalidField(fmt.Sprintf("allow_cidrs[%d]", i), "%q is not an IPv4 range like 10.1.0.0/16", p)
		}
	}
	for i, r := range cfg.Resolvers {
		if !r.IsValid() || r.Port() == 0 {
			return nil, sandbox.InvalidField(fmt.Sprintf("resolvers[%d]", i), "%q is not an address like 192.0.2.1:53", r)
		}
	}
	if cfg.MaxFlows < 0 || cfg.MaxTotalFlows < 0 || cfg.BufferBytes < 0 || cfg.MaxTotalBufferBytes < 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "limits of the network cannot be negative")
	}
	n := &Network{
		log:      cfg.Log,
		policy:   cfg.Policy,
		closure:  closure{allow: cfg.AllowCIDRs},
		resolver: newResolver(cfg.Resolvers),
		connect: func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		},
		total: budget{
			flows: cmp.Or(cfg.MaxTotalFlows, atMostOfFiles(8192, 2)),
			extra: cmp.Or(cfg.MaxTotalBufferBytes, 512<<20),
		},
		perBox: budgetSize{
			flows: cmp.Or(cfg.MaxFlows, 512),
			extra: cmp.Or(cfg.BufferBytes, 96<<20),
		},
		gateways: gateways{open: map[*Gateway]struct{}{}},
		dnsIdle:  dnsIdle, pingTimeout: pingTimeout,
	}
	if n.policy == nil {
		n.policy = allowAll{}
	}
	return n, nil
}

// atMostOfFiles returns most, or the given part of this process's limit of open files if that is
// less: the rest is for everything else.
func atMostOfFiles(most, part uint64) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return int(most)
	}
	return int(min(most, limit.Cur/part))
}
