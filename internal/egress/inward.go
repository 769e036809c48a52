package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// maxInward bounds the gateways of a network that lead to this process only.
const maxInward = 1000

var errInward = fmt.Errorf("%d sandboxes without network have an interface already", maxInward)

// acceptFrame decides whether the stack receives a frame, and as which protocol.
func (g *Gateway) acceptFrame(frame []byte) (tcpip.NetworkProtocolNumber, bool) {
	if !g.inward {
		return acceptFrame(frame)
	}
	proto, ok, refused := acceptInward(frame)
	if refused && g.questions.Allow() {
		// So that a resolver that still asks the gateway fails at once.
		datagram := header.UDP(frame[header.EthernetMinimumSize+header.IPv4MinimumSize:])
		g.unreachable(header.ICMPv4PortUnreachable, stack.TransportEndpointID{
			LocalAddress: tcpip.AddrFrom4(GatewayAddr.As4()), LocalPort: datagram.DestinationPort(),
			RemoteAddress: tcpip.AddrFrom4(GuestPrefix.Addr().As4()), RemotePort: datagram.SourcePort(),
		})
	}
	return proto, ok
}

// limitResets has the stack answer segments that belong to no connection, where nothing listens, up to
// the rate of new connections only.
func (g *Gateway) limitResets() {
	g.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
		return !g.connects.Allow()
	})
}

var errFlows = errors.New("the sandbox has too many connections")

// Dial connects to a TCP port of the sandbox, from [GatewayAddr]. It does not reach a server that
// listens only on the sandbox's loopback. The connection outlives ctx, counts as a flow of the sandbox,
// and is a *Conn. All such connections together have a budget of their own.
//
// Errors: syscall.ECONNREFUSED in the chain when nothing listens there; net.ErrClosed when the
// gateway is closed; others when the sandbox has too many flows or does not answer before ctx ends.
func (g *Gateway) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if !g.enter() {
		return nil, net.ErrClosed
	}
	defer g.leave("dial")
	l, ok := take(2*(maxBuffer-minBuffer), &g.budget, &g.network.visitors)
	if !ok {
		return nil, errFlows
	}
	c, err := g.connectGuest(ctx, port, l)
	if err != nil {
		l.release()
		return nil, fmt.Errorf("connect to port %d of sandbox %s: %w", port, g.name, err)
	}
	return c, nil
}

// connectGuest performs the handshake. On success the connection owns the lease; on an error the
// caller does.
func (g *Gateway) connectGuest(ctx context.Context, port uint16, l *lease) (*Conn, error) {
	queue := new(waiter.Queue)
	ep, err := g.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, queue)
	if err != nil {
		return nil, errors.New(err.String())
	}
	ep.SocketOptions().SetReceiveBufferSize(int64(l.buffer()), true)
	ep.SocketOptions().SetSendBufferSize(int64(l.buffer()), true)
	settled, notify := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	queue.EventRegister(&settled)
	defer queue.EventUnregister(&settled)
	err = ep.Connect(tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(GuestPrefix.Addr().As4()), Port: port})
	if _, started := err.(*tcpip.ErrConnectStarted); started {
		select {
		case <-notify:
			err = ep.LastError()
		case <-ctx.Done():
			ep.Abort()
			return nil, context.Cause(ctx)
		case <-g.ctx.Done():
			ep.Abort()
			return nil, net.ErrClosed
		}
	}
	switch err.(type) {
	case nil:
		return &Conn{guestConn: guestConn{gonet.NewTCPConn(queue, ep), ep, queue}, gateway: g, lease: l}, nil
	case *tcpip.ErrConnectionRefused:
		ep.Close()
		return nil, syscall.ECONNREFUSED
	default:
		ep.Close()
		return nil, errors.New(err.String())
	}
}

// Conn is a connection to a server in the sandbox. CloseWrite ends only the direction to the
// server.
type Conn struct {
	guestConn
	gateway *Gateway
	lease   *lease
	once    sync.Once
}

// Close ends both directions. Data that was written still arrives if the sandbox reads it soon;
// until then the connection counts as a flow.
func (c *Conn) Close() error {
	c.once.Do(func() {
		_ = c.TCPConn.Close() // wakes readers
		if c.gateway.spawn("finish", func() { c.finish(c.gateway.ctx); c.lease.release() }) {
			return
		}
		c.abort()
		c.lease.release()
	})
	return nil
}
