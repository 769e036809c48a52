package wire

import "time"

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

// ChangeNetwork is the body of PATCH /v1/sandboxes/{ref}/network.
type ChangeNetwork struct {
	Enabled *bool  `json:"enabled,omitempty" doc:"Switch its access to the internet on or off, which cuts its connections; as it is when omitted."`
	Ports   *[]int `json:"ports,omitempty" doc:"The ports it publishes from now on; as they are when omitted."`
}

// Usage is what a sandbox has used since it was made.
type Usage struct {
	At                *time.Time `json:"at" doc:"When it was measured last; null before it first ran."`
	RunningSeconds    float64    `json:"running_seconds" doc:"How long it ran, pauses excluded."`
	CPUSeconds        float64    `json:"cpu_seconds" doc:"Processor time of all cores together."`
	MemoryByteSeconds int64      `json:"memory_byte_seconds" doc:"Memory in use, added up over the time it ran."`
	SentBytes         int64      `json:"network_sent_bytes" doc:"Bytes it sent over its network interface."`
	ReceivedBytes     int64      `json:"network_received_bytes" doc:"Bytes it received over its network interface."`
}
