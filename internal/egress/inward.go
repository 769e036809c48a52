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
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

var errFlows = errors.New("the sandbox has too many connections")

// Dial connects to a TCP port of the sandbox, from [GatewayAddr]. It does not reach a server that
// listens only on the sandbox's loopback. The connection outlives ctx, counts as a flow, and is a
// *Conn.
//
// Errors: syscall.ECONNREFUSED in the chain when nothing listens there; net.ErrClosed when the
// gateway is closed; others when the sandbox has too many flows or does not answer before ctx ends.
func (g *Gateway) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if !g.enter() {
		return nil, net.ErrClosed
	}
	defer g.leave("dial")
	l, ok := g.take(2 * (maxBuffer - minBuffer))
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
