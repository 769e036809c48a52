package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

// Networks are the routes of the networks of sandboxes.
type Networks struct {
	Service *network.Service
	View    View
}

type changeNetworkInput struct {
	route.SandboxRef
	Body wire.ChangeNetwork
}

// Register adds the routes.
func (h *Networks) Register(m *route.Mux) {
	tags := []string{"sandboxes"}
	route.JSON(m, huma.Operation{
		OperationID: "change-network", Method: http.MethodPatch, Path: "/v1/sandboxes/{sandbox}/network", Tags: tags,
		Summary:     "Change a sandbox's network",
		Description: "Switches access to the internet of a running or paused sandbox, or changes the destinations that it may reach, the ports that it publishes, or how requests reach its servers. A paused one has what was changed when it is resumed.",
	}, h.change)
}

func (h *Networks) change(ctx context.Context, in *changeNetworkInput) (*route.Body[wire.Sandbox], error) {
	change := network.Change{Enabled: in.Body.Enabled, AllowOut: in.Body.AllowOut, DenyOut: in.Body.DenyOut, RequestHost: in.Body.RequestHost}
	if in.Body.Ports != nil {
		list, err := ports("ports", *in.Body.Ports)
		if err != nil {
			return nil, err
		}
		change.Ports = &list
	}
	if in.Body.HTTPSPorts != nil {
		list, err := ports("https_ports", *in.Body.HTTPSPorts)
		if err != nil {
			return nil, err
		}
		change.HTTPSPorts = &list
	}
	return h.View.of(ctx).changed(h.Service.Set(ctx, route.Caller(ctx), in.Ref, change))
}

// requestedNetwork reads the network of a request.
func requestedNetwork(n *wire.Network) (sandbox.Network, error) {
	if n == nil {
		return sandbox.Network{}, nil
	}
	list, err := ports("network.ports", n.Ports)
	if err != nil {
		return sandbox.Network{}, err
	}
	secure, err := ports("network.https_ports", n.HTTPSPorts)
	net := sandbox.Network{Enabled: n.Enabled, Ports: list, AllowOut: n.AllowOut, RequestHost: n.RequestHost, HTTPSPorts: secure}
	if len(n.DenyOut) > 0 { // an empty list is the same as none: clients send both
		net.DenyOut = n.DenyOut
	}
	return net, err
}

// ports reads the numbers in a field.
func ports(field string, numbers []int) ([]uint16, error) {
	var list []uint16
	for _, n := range numbers {
		if n < 1 || n > 65535 {
			return nil, sandbox.InvalidField(field, "must be 1 to 65535")
		}
		list = append(list, uint16(n))
	}
	return list, nil
}
