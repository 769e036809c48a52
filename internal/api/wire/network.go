package wire

// Network is what a sandbox may be asked to have of a network.
type Network struct {
	Enabled bool  `json:"enabled,omitempty" doc:"Whether it reaches the internet. Closed all the same: the server's host, private, link-local and metadata addresses."`
	Ports   []int `json:"ports,omitempty" nullable:"false" maxItems:"32" doc:"Ports it publishes, each 1 to 65535; each gets a URL, and the first is where the sandbox's URL leads."`
}

// SandboxNetwork is the network of a sandbox.
type SandboxNetwork struct {
	Enabled bool            `json:"enabled" doc:"Whether it reaches the internet."`
	Ports   []PublishedPort `json:"ports" nullable:"false" doc:"The ports it publishes, in the order asked for."`
}

// PublishedPort is a port of a sandbox and where it is reached.
type PublishedPort struct {
	Port int    `json:"port" doc:"The port in the sandbox."`
	URL  string `json:"url" doc:"Where it is reached. The URL is a secret."`
}
