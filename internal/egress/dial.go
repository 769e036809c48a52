package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

var (
	errClosed  = errors.New("destination is closed")
	errRefused = errors.New("refused")
)

// dialTimeout bounds attempts to connect to a host that does not answer.
const dialTimeout = 20 * time.Second

// permit checks whether a flow is allowed: first its address, then the policy, and then the rules of
// the sandbox.
func (g *Gateway) permit(ctx context.Context, flow Flow) error {
	if err := g.permitAll(ctx, flow); err != nil {
		return err
	}
	return g.restriction.check(flow)
}

// permitAll checks what holds for all sandboxes: the address and the policy.
func (g *Gateway) permitAll(ctx context.Context, flow Flow) error {
	if flow.Protocol != DNS {
		if err := g.network.closure.check(flow.Dest.Addr()); err != nil {
			return err
		}
	}
	flow.Sandbox = g.name
	if d := g.network.policy.Allow(ctx, flow); !d.Allow {
		return fmt.Errorf("%w: %s", errRefused, d.Reason)
	}
	return nil
}

// dial connects the host to flow.Dest. The permission is checked at the last moment, on the address
// to which the socket is about to connect.
func (g *Gateway) dial(ctx context.Context, flow Flow) (net.Conn, error) {
	d := net.Dialer{
		Timeout: dialTimeout,
		ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			dest, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return g.permitAll(ctx, Flow{Protocol: flow.Protocol, Dest: dest})
		},
	}
	if err := g.restriction.check(flow); err != nil {
		g.refused(flow, err)
		return nil, err
	}
	conn, err := g.network.connect(ctx, &d, string(flow.Protocol)+"4", flow.Dest.String())
	if err != nil {
		g.refused(flow, err)
		return nil, err
	}
	return conn, nil
}

// refused counts and logs a refused flow.
func (g *Gateway) refused(flow Flow, err error) {
	if errors.Is(err, errClosed) || errors.Is(err, errRefused) {
		g.usage.denied.Add(1)
	}
	g.log.Debug("flow refused", "protocol", flow.Protocol, "dest", flow.Dest, "error", err)
}
