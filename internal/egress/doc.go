// Package egress is the network of a sandbox: a gateway in user space.
//
// A sandbox's interface is one end of a socket pair; the other end is a network
// stack in this process. What the sandbox sends is taken apart there, and every
// flow goes out of the host as an ordinary socket of the server. There are no
// interfaces, bridges or packet filters on the host, and nothing here needs
// root.
//
//	n, err := egress.New(egress.Config{Log: log})  // one per server
//	g, nic, err := n.Attach(id.String())            // one per sandbox with network
//	...                                             // give nic to the sandbox
//	conn, err := g.Dial(ctx, 8080)                  // to a server in the sandbox
//	usage := g.Usage()                              // totals, for as long as g lives
//	g.Close()                                       // cuts every flow at once
//
// Every sandbox has the same addresses ([GuestPrefix], [GatewayAddr]); they
// exist on its own socket pair only. It speaks IPv4; IPv6 does not exist for it.
//
// # What is closed
//
// A destination is looked at as an address, right when the host's socket is
// connected, whatever name led to it. Closed are the host itself, loopback,
// private, shared, link-local and reserved ranges, metadata services, multicast
// and broadcast; package netguard has the list. [Config].AllowCIDRs opens some again.
// A [Policy] decides about what remains. A closed or refused destination is
// answered at once, by a reset or an ICMP error, and never by silence.
//
// DNS is answered by the gateway itself at [GatewayAddr], by asking the host's
// resolvers. Addresses that are closed are left out of the answers, so that a
// name cannot lead where the address would not.
//
// # What a hostile sandbox can take
//
// Each sandbox has a number of flows, a share of memory for what is buffered in
// them, and a rate of frames, of new connections and of questions; all
// sandboxes together have totals. What goes beyond is refused or waits. What
// comes out of the socket pair is checked before the stack sees it, and only
// plain IPv4 and ARP of the sandbox's own address gets in.
package egress
