// Package egress is the network of a sandbox: a gateway in user space.
//
// A sandbox's interface is an end of a socket pair; the other end is a network stack in this
// process. The stack terminates what the sandbox sends, and every flow leaves the host through an
// ordinary socket of the server. There are no interfaces, bridges or packet filters on the host,
// and nothing here needs root.
//
//	n, err := egress.New(egress.Config{Log: log})  // one per server
//	g, nic, err := n.Attach(id.String())            // one per sandbox with network
//	...                                             // give nic to the sandbox
//	conn, err := g.Dial(ctx, 8080)                  // to a server in the sandbox
//	usage := g.Usage()                              // totals, for as long as g lives
//	g.Close()                                       // cuts every flow at once
//
// Every sandbox has the same addresses ([GuestPrefix], [GatewayAddr]); they exist only on its own
// socket pair. Sandboxes have IPv4 only.
//
// # Closed destinations
//
// Destinations are checked as addresses, at the moment when the host's socket connects, whatever
// name led to them. Closed are the host itself, loopback, private, shared, link-local and reserved
// ranges, metadata services, multicast and broadcast; package netguard has the list.
// [Config].AllowCIDRs opens some of them. A [Policy] decides about the others. A closed or refused
// destination is answered at once, by a reset or an ICMP error, and never by silence.
//
// The gateway itself answers DNS at [GatewayAddr], by asking the host's resolvers. It removes
// closed addresses from the answers, so that a name cannot lead where the address would not.
//
// # Limits on hostile sandboxes
//
// Each sandbox has a limited number of flows, a share of memory for their buffers, and rates of
// frames, of new connections and of questions; all sandboxes together have limits also. Flows
// and frames beyond a limit are refused or wait. Frames from the socket pair are checked before the stack sees
// them; only plain IPv4 and ARP from the sandbox's own address passes.
package egress
