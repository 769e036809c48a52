package sandbox

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// PortsMax is how many ports a sandbox may publish.
const PortsMax = 32

// PortPlaceholder stands for the port of a request in [Network.RequestHost].
const PortPlaceholder = "${PORT}"

// Network is a sandbox's way out, and what it publishes.
type Network struct {
	// Enabled gives it an interface that leads to the internet. Without it has its loopback only.
	Enabled bool
	// Ports are those it publishes: each has a URL of its own, and the first is
	// where the sandbox's URL leads.
	Ports []uint16
	// AllowOut and DenyOut are the destinations that it may and may not reach, as package netrule
	// reads them. They apply only while Enabled is set.
	AllowOut, DenyOut []string `json:",omitempty"`
	// RequestHost is the host that its servers see in requests to its ports, in which [PortPlaceholder]
	// stands for the port. Without it they see the host of the URL.
	RequestHost string `json:",omitempty"`
	// HTTPSPorts are the ports whose servers speak HTTPS, in place of HTTP.
	HTTPSPorts []uint16 `json:",omitempty"`
}

// Rules returns the settings that are recorded together.
func (n *Network) Rules() NetworkRules {
	return NetworkRules{Allow: n.AllowOut, Deny: n.DenyOut, RequestHost: n.RequestHost, HTTPSPorts: n.HTTPSPorts}
}

// HostFor returns the host that a server on a port sees in requests; "" if it sees the host of the URL.
func (n *Network) HostFor(port uint16) string {
	return strings.ReplaceAll(n.RequestHost, PortPlaceholder, strconv.Itoa(int(port)))
}

// SpeaksHTTPS reports whether the server on a port speaks HTTPS.
func (n *Network) SpeaksHTTPS(port uint16) bool { return slices.Contains(n.HTTPSPorts, port) }

// NetworkRules are settings of a network, as they are recorded: the lists of destinations, and how
// requests reach its servers.
type NetworkRules struct {
	Allow       []string `json:"allow,omitempty"`
	Deny        []string `json:"deny,omitempty"`
	RequestHost string   `json:"request_host,omitempty"`
	HTTPSPorts  []uint16 `json:"https_ports,omitempty"`
}

// Equal reports whether two settings are the same.
func (r *NetworkRules) Equal(other *NetworkRules) bool {
	return slices.Equal(r.Allow, other.Allow) && slices.Equal(r.Deny, other.Deny) &&
		r.RequestHost == other.RequestHost && slices.Equal(r.HTTPSPorts, other.HTTPSPorts)
}

// Usage is the use of a sandbox since it was made: over pauses, restarts of the server, and after
// its end.
type Usage struct {
	// At is when it was measured; zero when it never was.
	At time.Time
	// Running is how long it ran, CPU the processor time of all cores together.
	Running, CPU time.Duration
	// MemoryByteSeconds is its memory in use, added up over the time it ran.
	MemoryByteSeconds int64
	// SentBytes and ReceivedBytes are the bytes of IP packets over its network interface.
	SentBytes, ReceivedBytes int64
	// BoxCPU is how much of CPU was measured of the box it has now: a restarted
	// server goes on counting from there.
	BoxCPU time.Duration
}
