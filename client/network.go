package client

// Network is what a sandbox is asked to have of a network.
type Network struct {
	// Enabled gives it access to the internet.
	Enabled bool `json:"enabled,omitempty"`
	// Ports are those it publishes, 32 at most; its URL leads to the first.
	Ports []uint16 `json:"ports,omitempty"`
}

// SandboxNetwork is the network of a sandbox.
type SandboxNetwork struct {
	Enabled bool            `json:"enabled"`
	Ports   []PublishedPort `json:"ports"`
}

// PublishedPort is a port of a sandbox and where it is reached.
type PublishedPort struct {
	Port uint16 `json:"port"`
	URL  string `json:"url"`
}
