package egress

import (
	"context"
	"net/netip"
)

// Protocol is the protocol of a flow.
type Protocol string

// The protocols a sandbox can use.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp" // echo requests
	DNS  Protocol = "dns"  // questions to the gateway
)

// Flow is a request of a sandbox: a connection, the first datagram of a flow, an echo request, or a
// question to the gateway's resolver.
type Flow struct {
	// Sandbox is the name that was given to [Network.Attach].
	Sandbox  string
	Protocol Protocol
	// Dest is the destination; the port is 0 for ICMP. Not valid for DNS.
	Dest netip.AddrPort
	// Name is the name in a question: lower case, with a dot at the end. DNS only.
	Name string
}

// Decision is the answer of a [Policy].
type Decision struct {
	// Allow permits the flow, unless its address is closed.
	Allow bool
	// Reason is the reason of a refusal, for the log.
	Reason string
}

// Policy decides about flows to destinations that are not closed: it can refuse open destinations,
// and cannot open closed destinations.
type Policy interface {
	// Allow decides about a flow, before anything is sent. It is called on the sandbox's packet
	// path, concurrently, so it must answer from memory.
	Allow(ctx context.Context, flow Flow) Decision
}

// allowAll is the policy of a network without one.
type allowAll struct{}

func (allowAll) Allow(context.Context, Flow) Decision { return Decision{Allow: true} }
