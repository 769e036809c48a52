package egress

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	udpIdle = time.Minute
	// udpBriefIdle is the idle time for questions to outside DNS servers, which use a new port for
	// each question.
	udpBriefIdle = 10 * time.Second
	// udpBuffer is the queue of a flow; it fits the largest datagram once.
	udpBuffer   = 32 << 10
	maxDatagram = 65507
)

// datagramBuffers are buffers for a datagram and an additional byte.
var datagramBuffers = sync.Pool{New: func() any { return new([maxDatagram + 1]byte) }}

// udpFlows are the UDP flows of a sandbox.
type udpFlows struct {
	mu   sync.Mutex
	open map[*udpFlow]struct{} // guarded by mu
}

// udpFlow has the datagrams that a sandbox sends from a port to a destination, and the answers.
type udpFlow struct {
	gateway  *Gateway
	id       stack.TransportEndpointID
	endpoint tcpip.Endpoint
	queue    *waiter.Queue
	host     *net.UDPConn
	idle     time.Duration
	last     atomic.Int64 // Unix nanoseconds of the last datagram
	ctx      context.Context
	end      context.CancelFunc
}

// acceptUDP handles the first datagram of a flow. If it returns false, the stack answers that the
// port is unreachable. It runs in the goroutine that reads frames, so nothing in it may wait.
func (g *Gateway) acceptUDP(r *udp.ForwarderRequest) bool {
	dest := destination(r.ID())
	l, ok := g.take(0)
	if !ok {
		// This datagram is lost and the next one succeeds, unless connections use the whole budget.
		return g.datagrams.endQuietest()
	}
	f := &udpFlow{gateway: g, id: r.ID(), queue: new(waiter.Queue), idle: udpIdle}
	if dest.Port() == 53 {
		f.idle = udpBriefIdle
	}
	flow := Flow{Protocol: UDP, Dest: dest}
	host, err := g.dial(g.ctx, flow)
	if err != nil {
		l.release()
		return false
	}
	f.host = host.(*net.UDPConn)
	f.ctx, f.end = context.WithCancel(g.ctx)
	p, err := g.restriction.enter(flow, f.end)
	if err != nil {
		g.refused(flow, err)
		f.end()
		_ = host.Close()
		l.release()
		return false
	}
	release := func() {
		g.restriction.leave(p)
		l.release()
	}
	ep, terr := r.CreateEndpoint(f.queue)
	if terr != nil {
		f.end()
		_ = host.Close()
		release()
		return true
	}
	f.endpoint = ep
	ep.SocketOptions().SetReceiveBufferSize(udpBuffer, false)
	run := func() {
		defer release()
		f.run()
	}
	if !g.spawn("udp", run) {
		f.end()
		ep.Close()
		_ = host.Close()
		release()
	}
	return true
}

// endQuietest ends the flow that has been quiet longest to free its place, if there is such a flow.
func (u *udpFlows) endQuietest() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	var quietest *udpFlow
	for f := range u.open {
		if quietest == nil || f.last.Load() < quietest.last.Load() {
			quietest = f
		}
	}
	if quietest == nil {
		return false
	}
	quietest.end()
	return true
}

// run relays datagrams until the flow was quiet for too long.
func (f *udpFlow) run() {
	u := &f.gateway.datagrams
	f.touch()
	u.mu.Lock()
	u.open[f] = struct{}{}
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		delete(u.open, f)
		u.mu.Unlock()
	}()
	stop := context.AfterFunc(f.ctx, func() { _ = f.host.Close() })
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() {
		defer f.end()
		f.out()
	})
	f.in()
	f.end()
	wg.Wait()
	f.endpoint.Close()
}

func (f *udpFlow) touch() { f.last.Store(time.Now().UnixNano()) }

// out relays datagrams from the sandbox.
func (f *udpFlow) out() {
	readable, notify := waiter.NewChannelEntry(waiter.ReadableEvents)
	f.queue.EventRegister(&readable)
	defer f.queue.EventUnregister(&readable)
	for f.ctx.Err() == nil {
		again, err := f.outOne()
		if errors.Is(err, net.ErrClosed) || f.undelivered(err) {
			return
		}
		if again {
			continue // after other errors the datagram is lost, as on other networks
		}
		select {
		case <-notify:
		case <-f.ctx.Done():
		}
	}
}

// undelivered reports to the sandbox what the host learned about the destination, if err is about
// that.
func (f *udpFlow) undelivered(err error) bool {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		f.gateway.unreachable(header.ICMPv4PortUnreachable, f.id)
	case errors.Is(err, unix.EHOSTUNREACH):
		f.gateway.unreachable(header.ICMPv4HostUnreachable, f.id)
	case errors.Is(err, unix.ENETUNREACH):
		f.gateway.unreachable(header.ICMPv4NetUnreachable, f.id)
	default:
		return false
	}
	return true
}

// outOne sends a datagram; it reports whether there was one.
func (f *udpFlow) outOne() (bool, error) {
	buf := datagramBuffers.Get().(*[maxDatagram + 1]byte)
	defer datagramBuffers.Put(buf)
	w := tcpip.SliceWriter(buf[:])
	res, terr := f.endpoint.Read(&w, tcpip.ReadOptions{})
	switch terr.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return false, nil
	case *tcpip.ErrClosedForReceive:
		return false, net.ErrClosed
	default:
		return true, nil // an ICMP error of the sandbox
	}
	f.touch()
	_, err := f.host.Write(buf[:res.Count])
	return true, err
}

// in delivers the answers.
func (f *udpFlow) in() {
	conn, err := f.host.SyscallConn()
	if err != nil {
		return
	}
	for {
		quiet := time.Duration(time.Now().UnixNano() - f.last.Load())
		if quiet >= f.idle {
			return
		}
		_ = f.host.SetReadDeadline(time.Now().Add(f.idle - quiet))
		if err := f.inOne(conn); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			f.undelivered(err)
			return
		}
	}
}

// inOne waits for a datagram and delivers it.
func (f *udpFlow) inOne(conn syscall.RawConn) error {
	var buf *[maxDatagram + 1]byte
	var n int
	var readErr error
	err := conn.Read(func(fd uintptr) bool {
		b := datagramBuffers.Get().(*[maxDatagram + 1]byte)
		n, readErr = unix.Read(int(fd), b[:])
		if readErr != nil {
			datagramBuffers.Put(b)
			return readErr != unix.EAGAIN
		}
		buf = b
		return true
	})
	if err != nil {
		return err
	}
	if readErr != nil {
		return readErr
	}
	f.touch()
	_, _ = f.endpoint.Write(bytes.NewReader(buf[:n]), tcpip.WriteOptions{}) // lost if the sandbox does not accept it
	datagramBuffers.Put(buf)
	return nil
}
