package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

type changeNetworkInput struct {
	SandboxRef
	Body wire.ChangeNetwork
}

func (s *Server) registerNetwork(a huma.API) {
	tags := []string{"sandboxes"}
	route(a, huma.Operation{
		OperationID: "change-network", Method: http.MethodPatch, Path: "/v1/sandboxes/{sandbox}/network", Tags: tags,
		Summary:     "Change a sandbox's network",
		Description: "Switches access to the internet of a running or paused sandbox, or the ports it publishes. A paused one has what was changed when it is resumed.",
	}, s.changeNetwork)
	route(a, huma.Operation{
		OperationID: "get-usage", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/usage", Tags: tags,
		Summary: "Total use of a sandbox", Description: "Since it was made, over pauses and restarts of the server. It remains available after the end of the sandbox.",
	}, s.getUsage)
	s.registerPorts(a)
}

func (s *Server) changeNetwork(ctx context.Context, in *changeNetworkInput) (*body[wire.Sandbox], error) {
	change := network.Change{Enabled: in.Body.Enabled}
	if in.Body.Ports != nil {
		list, err := ports("ports", *in.Body.Ports)
		if err != nil {
			return nil, err
		}
		change.Ports = &list
	}
	return s.changed(s.svc.Networks().Set(ctx, caller(ctx), in.Ref, change))
}

func (s *Server) getUsage(ctx context.Context, in *SandboxRef) (*body[wire.Usage], error) {
	u, err := s.svc.Usage(ctx, caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return reply(wire.Usage{
		At: optional(u.At), RunningSeconds: u.Running.Seconds(), CPUSeconds: u.CPU.Seconds(), MemoryByteSeconds: u.MemoryByteSeconds,
		SentBytes: u.SentBytes, ReceivedBytes: u.ReceivedBytes,
	}), nil
}

// requestedNetwork reads the network of a request.
func requestedNetwork(n *wire.Network) (sandbox.Network, error) {
	if n == nil {
		return sandbox.Network{}, nil
	}
	list, err := ports("network.ports", n.Ports)
	return sandbox.Network{Enabled: n.Enabled, Ports: list}, err
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

func (s *Server) formatNetwork(sb *sandbox.Sandbox) wire.SandboxNetwork {
	n := wire.SandboxNetwork{Enabled: sb.Network.Enabled, Ports: make([]wire.PublishedPort, 0, len(sb.Published))}
	for _, port := range sb.Published {
		n.Ports = append(n.Ports, s.formatPort(port))
	}
	return n
}
