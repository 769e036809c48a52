package sandbox

import "time"

// PortsMax is how many ports a sandbox may publish.
const PortsMax = 32

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
}

// Rules returns the lists of destinations.
func (n *Network) Rules() NetworkRules { return NetworkRules{Allow: n.AllowOut, Deny: n.DenyOut} }

// NetworkRules are the lists of destinations of a network, as they are recorded.
type NetworkRules struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
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
