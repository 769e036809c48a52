package client

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/client/wire"
)

// Network is the requested network of a sandbox.
type Network struct {
	Enabled bool     `json:"enabled,omitempty"` // access to the internet
	Ports   []uint16 `json:"ports,omitempty"`   // the ports that it publishes, at most 32; its URL leads to the first
	// AllowOut and DenyOut are the destinations that it may and may not reach; for all see [wire.Network].
	AllowOut    []string `json:"allow_out,omitempty"`
	DenyOut     []string `json:"deny_out,omitempty"`
	RequestHost string   `json:"request_host,omitempty"` // the host that its servers see
	HTTPSPorts  []uint16 `json:"https_ports,omitempty"`  // ports whose servers speak HTTPS
}

// SandboxNetwork is the network of a sandbox.
type SandboxNetwork = wire.SandboxNetwork

// NetworkChange changes a sandbox's network; nil fields stay.
type NetworkChange struct {
	Enabled     *bool     `json:"enabled,omitempty"`
	Ports       *[]uint16 `json:"ports,omitempty"`
	AllowOut    *[]string `json:"allow_out,omitempty"`
	DenyOut     *[]string `json:"deny_out,omitempty"`
	RequestHost *string   `json:"request_host,omitempty"`
	HTTPSPorts  *[]uint16 `json:"https_ports,omitempty"`
}

// Usage is the use of a sandbox since it was made, over pauses and restarts of the server.
type Usage = wire.Usage

// SetNetwork changes the network of a running or paused sandbox, and cuts connections that are not
// allowed then. Errors: Invalid, naming the field; NotFound; NotRunning while it is provisioning; Ended; Unsupported.
func (c *Sandboxes) SetNetwork(ctx context.Context, ref string, change NetworkChange) (*Sandbox, error) {
	return fetch[Sandbox](ctx, c.transport, request{method: http.MethodPatch, path: sandboxPath(ref, "network"), body: change, repeat: true})
}

// Usage returns the total use of a sandbox, also after its end. Errors: NotFound.
func (c *Sandboxes) Usage(ctx context.Context, ref string) (*Usage, error) {
	return fetch[Usage](ctx, c.transport, request{method: http.MethodGet, path: sandboxPath(ref, "usage"), repeat: true})
}
