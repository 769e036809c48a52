package wire

import "time"

// Network is the requested network of a sandbox.
type Network struct {
	Enabled bool  `json:"enabled,omitempty" doc:"Whether it reaches the internet. Closed all the same: the server's host, private, link-local and metadata addresses."`
	Ports   []int `json:"ports,omitempty" nullable:"false" maxItems:"32" doc:"Ports it publishes, each 1 to 65535; each gets a public URL of its own, and the sandbox's URL leads to the first."`

	AllowOut []string `json:"allow_out,omitempty" nullable:"false" maxItems:"100" doc:"Destinations it may reach: IPv4 addresses, ranges, and names such as example.com or *.example.com (all names beneath it). They win over deny_out. Without deny_out, everything else is denied." example:"[\"pypi.org\",\"*.pythonhosted.org\"]"`
	DenyOut  []string `json:"deny_out,omitempty" nullable:"false" maxItems:"100" doc:"IPv4 addresses and ranges it may not reach. Names in allow_out need 0.0.0.0/0 here." example:"[\"0.0.0.0/0\"]"`

	RequestHost string `json:"request_host,omitempty" doc:"The host that its servers see in requests to its ports (the header Host), with a port or without; ${PORT} in it stands for the port of the request. The host of the URL when omitted." example:"localhost:${PORT}"`
	HTTPSPorts  []int  `json:"https_ports,omitempty" nullable:"false" maxItems:"32" doc:"Ports whose servers speak HTTPS, each 1 to 65535: requests to them are sent by TLS, and any certificate is accepted. The URLs stay the same."`
}

// SandboxNetwork is the network of a sandbox.
type SandboxNetwork struct {
	Enabled bool            `json:"enabled" doc:"Whether it reaches the internet."`
	Ports   []PublishedPort `json:"ports" nullable:"false" doc:"The ports it publishes, in the order asked for."`

	AllowOut []string `json:"allow_out" nullable:"false" doc:"Destinations it may reach even if deny_out contains them."`
	DenyOut  []string `json:"deny_out" nullable:"false" doc:"Addresses and ranges it may not reach."`

	RequestHost string   `json:"request_host" doc:"The host that its servers see in requests; empty for the host of the URL."`
	HTTPSPorts  []uint16 `json:"https_ports" nullable:"false" doc:"Ports whose servers speak HTTPS."`
}

// PublishedPort is a port of a sandbox and where it is reached.
type PublishedPort struct {
	Port      uint16     `json:"port" doc:"The port in the sandbox."`
	URL       string     `json:"url" doc:"The URL of the port. It leads to this port and to nothing else of the sandbox, and is as safe to share as the server on the port. Empty for callers who may only read."`
	Access    PortAccess `json:"access" enum:"public,private" doc:"public: the URL suffices. private: visitors need an API token or a signed link as well."`
	CreatedAt time.Time  `json:"created_at" doc:"When the URL was made."`
}

// PublishPort is the body of PUT /v1/sandboxes/{sandbox}/ports/{port}.
type PublishPort struct {
	Access PortAccess `json:"access,omitempty" enum:"public,private" doc:"Who may use its URL; public when omitted."`
}

// CreatePortLink is the body of POST /v1/sandboxes/{sandbox}/ports/{port}/links.
type CreatePortLink struct {
	ExpiresInSeconds int `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"604800" doc:"How long it works, 60 to 604800 seconds; an hour when omitted."`
}

// PortLink is a signed link to a private port.
type PortLink struct {
	URL       string    `json:"url" doc:"The link, for a browser. It is a secret."`
	Token     string    `json:"token" doc:"What is signed of it; programs send it in the header X-Modbox-Token to the port's own URL."`
	ExpiresAt time.Time `json:"expires_at" doc:"When it stops working."`
}

// ChangeNetwork is the body of PATCH /v1/sandboxes/{sandbox}/network.
type ChangeNetwork struct {
	Enabled *bool  `json:"enabled,omitempty" doc:"Switch its access to the internet on or off, which cuts its connections; as it is when omitted."`
	Ports   *[]int `json:"ports,omitempty" doc:"The ports it publishes from now on. A port that was published before keeps its URL and access; the URLs of removed ports stop working. Unchanged when omitted."`

	AllowOut *[]string `json:"allow_out,omitempty" doc:"The destinations it may reach from now on, as in a create; open connections to others are cut. Unchanged when omitted."`
	DenyOut  *[]string `json:"deny_out,omitempty" doc:"The addresses and ranges it may not reach from now on; open connections to them are cut. When omitted it is unchanged, or 0.0.0.0/0 if it is empty and allow_out gets entries."`

	RequestHost *string `json:"request_host,omitempty" doc:"The host that its servers see in requests from now on, as in a create; empty for the host of the URL. Unchanged when omitted."`
	HTTPSPorts  *[]int  `json:"https_ports,omitempty" doc:"The ports whose servers speak HTTPS from now on. Unchanged when omitted."`
}

// Usage is the use of a sandbox since it was made.
type Usage struct {
	At                *time.Time `json:"at,omitempty" doc:"When it was measured last; absent before it first ran."`
	RunningSeconds    float64    `json:"running_seconds" doc:"How long it ran, pauses excluded."`
	CPUSeconds        float64    `json:"cpu_seconds" doc:"Processor time of all cores together."`
	MemoryByteSeconds int64      `json:"memory_byte_seconds" doc:"Memory in use, added up over the time it ran."`
	SentBytes         int64      `json:"network_sent_bytes" doc:"Bytes it sent over its network interface."`
	ReceivedBytes     int64      `json:"network_received_bytes" doc:"Bytes it received over its network interface."`
}
