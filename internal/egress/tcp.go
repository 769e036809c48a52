package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// halfClosedIdle ends a connection on which one side has closed its direction and the other
	// sends nothing any more.
	halfClosedIdle = 5 * time.Minute
	// lingerTimeout is how long a sandbox may take to read the rest of a finished connection.
	lingerTimeout = time.Minute
)

// copyBuffers are for data in transit between a sandbox and the host.
var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// tcpHandler returns the stack's handler for segments without a connection. New connections above
// their rate are ignored, so that the sandbox tries again; the stack resets segments that belong to
// no connection.
func (g *Gateway) tcpHandler() func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	forwarder := tcp.NewForwarder(g.stack, maxBuffer, maxHandshakes, g.acceptTCP)
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
		if flags&(header.TCPFlagSyn|header.TCPFlagAck) == header.TCPFlagSyn && !g.connects.Allow() {
			return true
		}
		return forwarder.HandlePacket(id, pkt)
	}
}

// destination returns the destination of a packet: the local side, because the stack answers for
// all addresses.
func destination(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
}

// acceptTCP connects the host first and answers the sandbox afterwards, so that a refused
// connection is refused in the sandbox as well. It runs in a goroutine of its own.
func (g *Gateway) acceptTCP(r *tcp.ForwarderRequest) {
	if !g.enter() {
		r.Complete(true)
		return
	}
	defer g.leave("tcp")

	dest := destination(r.ID())
	var extra int64 = 2 * (maxBuffer - minBuffer)
	if dest == dnsAddr {
		extra = 0
	}
	l, ok := g.take(extra)
	if !ok {
		r.Complete(true)
		return
	}
	defer l.release()

	if dest == dnsAddr {
		if guest, ok := g.accept(r, l); ok {
			g.serveDNSOver(guest)
			guest.finish(g.ctx)
		}
		return
	}
	flow := Flow{Protocol: TCP, Dest: dest}
	host, err := g.dial(g.ctx, flow)
	if err != nil {
		r.Complete(true)
		return
	}
	ctx, cut := context.WithCancel(g.ctx)
	defer cut()
	p, err := g.restriction.enter(flow, cut)
	if err != nil {
		g.refused(flow, err)
		_ = host.Close()
		r.Complete(true)
		return
	}
	defer g.restriction.leave(p)
	if guest, ok := g.accept(r, l); ok {
		relay(ctx, guest, g.sender(guest, p), host.(*net.TCPConn))
		return
	}
	_ = host.Close()
}

// sender returns the side of a connection from which the sandbox's data is read. Beginnings that
// the rules do not allow are errors there.
func (g *Gateway) sender(guest *guestConn, p *permission) stream {
	if !g.restriction.named(p) {
		return guest
	}
	return &checkedConn{
		guestConn: guest, port: p.flow.Dest.Port(),
		allow:   func(name string) error { return g.restriction.narrow(p, name) },
		refused: func(err error) { g.refused(p.flow, err) },
	}
}

// guestConn is the sandbox's side of a connection.
type guestConn struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
	queue    *waiter.Queue
}

// accept performs the handshake with the sandbox. If it returns false, nothing remains.
func (g *Gateway) accept(r *tcp.ForwarderRequest, l *lease) (*guestConn, bool) {
	c := &guestConn{queue: new(waiter.Queue)}
	ep, err := r.CreateEndpoint(c.queue)
	r.Complete(false)
	if err != nil {
		return nil, false
	}
	ep.SocketOptions().SetReceiveBufferSize(int64(l.buffer()), true)
	ep.SocketOptions().SetSendBufferSize(int64(l.buffer()), true)
	c.endpoint = ep
	c.TCPConn = gonet.NewTCPConn(c.queue, ep)
	return c, true
}

// abort resets the connection at once.
func (c *guestConn) abort() { c.endpoint.Abort() }

// finish waits until the sandbox has read all data and the connection is freed, and resets it when
// that takes too long: a connection counts as long as it exists.
func (c *guestConn) finish(ctx context.Context) {
	ended, notify := waiter.NewChannelEntry(waiter.EventHUp)
	c.queue.EventRegister(&ended)
	defer c.queue.EventUnregister(&ended)
	c.endpoint.Close()
	late := time.NewTimer(lingerTimeout)
	defer late.Stop()
	for {
		switch tcp.EndpointState(c.endpoint.State()) {
		case tcp.StateClose, tcp.StateError, tcp.StateTimeWait:
			return
		}
		select {
		case <-notify:
		case <-late.C:
			c.abort()
			return
		case <-ctx.Done():
			c.abort()
			return
		}
	}
}

// relay copies in both directions until both have ended; it reads what the guest sends from sender.
// The end of a direction is passed on and does not affect the other; an error on one side resets the
// other.
func relay(ctx context.Context, guest *guestConn, sender stream, host *net.TCPConn) {
	abort := sync.OnceFunc(func() {
		_ = host.SetLinger(0) // a reset, not an end
		_ = host.Close()
		guest.abort()
	})
	stop := context.AfterFunc(ctx, abort)
	defer stop()

	var half atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { way(sender, host, &half, abort) })
	way(host, guest, &half, abort)
	wg.Wait()

	_ = host.Close()
	guest.finish(ctx)
}

// stream is a side of a connection.
type stream interface {
	net.Conn
	// CloseWrite ends the direction to the peer; reads go on.
	CloseWrite() error
}

// way copies from one side to the other, and passes on the end.
func way(from, to stream, half *atomic.Bool, abort func()) {
	if err := pour(to, from, half); err != nil {
		abort()
		return
	}
	half.Store(true)
	// The other direction must carry data until then; pour extends the deadline.
	_ = to.SetReadDeadline(time.Now().Add(halfClosedIdle))
	if err := to.CloseWrite(); err != nil {
		abort()
	}
}

// pour copies until the end of from.
func pour(to io.Writer, from stream, half *atomic.Bool) error {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if half.Load() {
			_ = from.SetReadDeadline(time.Now().Add(halfClosedIdle))
		}
	}
}
