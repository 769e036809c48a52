package egress

import (
	"context"
	"net/netip"
)

// Protocol is what a flow speaks.
type Protocol string

// The protocols a sandbox can use.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp" // echo requests
	DNS  Protocol = "dns"  // questions to the gateway
)

// Flow is what a sandbox asks for: a connection, the first datagram of a flow,
// an echo request, or a question to the gateway's resolver.
type Flow struct {
	// Sandbox is the name that was given to [Network.Attach].
	Sandbox  string
	Protocol Protocol
	// Dest is the destination; the port is 0 for ICMP. Not valid for DNS.
	Dest netip.AddrPort
	// Name is what a question is about: lower case, with a dot at the end. DNS only.
	Name string
}

// Decision is the answer of a [Policy].
type Decision struct {
	// Allow lets the flow pass, unless its address is closed.
	Allow bool
	// Reason says why not, for the log.
	Reason string
}

// Policy decides about flows to destinations that are not closed: it can refuse
// what would be open, and cannot open what is closed.
type Policy interface {
	// Allow decides about one flow, before anything is sent. It is called on the
	// sandbox's packet path by many goroutines at once: it answers from memory.
	Allow(ctx context.Context, flow Flow) Decision
}

// allowAll is the policy of a network without one.
type allowAll struct{}

func (allowAll) Allow(context.Context, Flow) Decision { return Decision{Allow: true} }
