package egress

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/qdisc/fifo"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	nicID = tcpip.NICID(1)
	// queuedFrames is how many frames may wait for a sandbox that does not read; more are dropped.
	queuedFrames = 128
	// maxHandshakes bounds the concurrent handshakes; further connections wait for their next try.
	maxHandshakes = 128
	// perBoxAsking bounds the concurrent questions of a sandbox.
	perBoxAsking = 64
	// timeWait is short because nothing arrives late on a socket pair.
	timeWait = time.Second
)

// Gateway connects a sandbox to the network. It is safe for concurrent use.
type Gateway struct {
	network *Network
	name    string
	log     *slog.Logger
	stack   *stack.Stack
	link    *link
	budget  budget
	usage   usage

	connects  *rate.Limiter // new TCP connections
	questions *rate.Limiter // DNS
	asking    chan struct{} // an element for each question in progress or waiting for the resolver
	own       chan struct{} // an element for each question that needs no shared place, see ownAsking
	pinging   chan struct{} // an element for each echo request in progress
	datagrams udpFlows
	// restriction has the rules of the sandbox.
	restriction restriction

	ctx    context.Context // ends when the gateway is cut
	cancel context.CancelFunc
	broken atomic.Bool // a panic left the stack in an unknown state
	once   sync.Once   // of Close

	mu     sync.Mutex
	closed bool           // guarded by mu
	work   sync.WaitGroup // calls of Add are guarded by mu
}

// Usage has the counters of a gateway since it was attached.
type Usage struct {
	// SentBytes and ReceivedBytes count the IP packets that the sandbox sent and received,
	// including headers, like the counters of its own interface.
	SentBytes, ReceivedBytes int64
	// Flows is the current number of connections and UDP flows.
	Flows int
	// Denied is the number of flows that the closed ranges, the policy or the rules refused.
	Denied int64
	// DroppedFrames is the number of frames that were malformed, forged, or too many.
	DroppedFrames int64
}

type usage struct {
	sent, received, denied, dropped atomic.Int64
}

// Attach makes the gateway of the sandbox called name, and the interface to plug into it. To plug a
// sandbox again, e.g. after a restart of the server, attach it again: its connections over the old
// interface are reset at their next use. Errors: the host's, when it has no file descriptors left.
func (n *Network) Attach(name string) (*Gateway, NIC, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, NIC{}, fmt.Errorf("attach network of %s: %w", name, err)
	}
	g := &Gateway{
		network:   n,
		name:      name,
		log:       n.log.With("sandbox", name),
		budget:    budget{flows: n.perBox.flows, extra: n.perBox.extra},
		connects:  rate.NewLimiter(1000, 2000),
		questions: rate.NewLimiter(200, 400),
		asking:    make(chan struct{}, perBoxAsking),
		own:       make(chan struct{}, ownAsking),
		pinging:   make(chan struct{}, 16),
		datagrams: udpFlows{open: map[*udpFlow]struct{}{}},
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.start(ours); err != nil {
		_ = ours.Close()
		_ = theirs.Close()
		g.cancel()
		return nil, NIC{}, fmt.Errorf("attach network of %s: %w", name, err)
	}
	n.gateways.add(g)
	return g, NIC{
		File: theirs, MAC: guestMAC, GatewayMAC: gatewayMAC,
		Address: GuestPrefix, Gateway: GatewayAddr, MTU: MTU,
	}, nil
}

// socketPair returns the two ends of a link; ours does not block. They are datagram sockets, which
// do not see the end of their peer: when the peer of a SOCK_SEQPACKET closes while frames are in
// transit, gVisor reads the end of file again and again, and a sandbox without server would use a
// whole core.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range fds {
		// The kernel grants as much as the host allows; less only costs speed.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	return os.NewFile(uintptr(fds[0]), "gateway"), os.NewFile(uintptr(fds[1]), "nic"), nil
}

// start builds the stack on our end of the link and begins to read from it.
func (g *Gateway) start(ours *os.File) error {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	g.stack = s
	if err := tune(s); err != nil {
		s.Destroy()
		return err
	}
	link, err := newLink(g, ours)
	if err != nil {
		s.Destroy()
		return err
	}
	g.link = link
	if err := g.configure(); err != nil {
		s.Destroy()
		return err
	}
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, g.tcpHandler())
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, g.acceptUDP).HandlePacket)
	s.SetTransportProtocolHandler(header.ICMPv4ProtocolNumber, g.acceptICMP)
	if err := g.serveDNS(); err != nil {
		s.Destroy()
		return err
	}
	g.spawn("read frames", link.read)
	return nil
}

// configure gives the stack its interface, which accepts packets to all addresses and answers from
// those addresses.
func (g *Gateway) configure() error {
	s := g.stack
	queue := fifo.New(g.link, 1, queuedFrames)
	if err := s.CreateNICWithOptions(nicID, g.link, stack.NICOptions{Name: "gateway", QDisc: queue}); err != nil {
		queue.Close()
		return fmt.Errorf("create interface: %s", err)
	}
	address := tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFrom4(GatewayAddr.As4()), PrefixLen: GuestPrefix.Bits(),
		},
	}
	if err := s.AddProtocolAddress(nicID, address, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("add address: %s", err)
	}
	if err := s.SetPromiscuousMode(nicID, true); err != nil {
		return fmt.Errorf("accept packets to all addresses: %s", err)
	}
	if err := s.SetSpoofing(nicID, true); err != nil {
		return fmt.Errorf("answer from all addresses: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	return nil
}

// tune bounds what the stack buffers for a connection.
func tune(s *stack.Stack) error {
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: maxBuffer, Max: maxBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: maxBuffer, Max: maxBuffer}
	moderate := tcpip.TCPModerateReceiveBufferOption(false)
	sack := tcpip.TCPSACKEnabled(true)
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	tries := tcpip.TCPSynRetriesOption(3)
	for _, o := range []tcpip.SettableTransportProtocolOption{&receive, &send, &moderate, &sack, &wait, &tries} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("set %T: %s", o, err)
		}
	}
	return nil
}

// spawn runs f in a goroutine until the gateway is closed; f must end when g.ctx does. It reports
// whether the gateway was still open. A panic in f cuts the gateway and nothing else.
func (g *Gateway) spawn(what string, f func()) bool {
	if !g.enter() {
		return false
	}
	go func() {
		defer g.leave(what)
		f()
	}()
	return true
}

// enter registers the calling goroutine, unless the gateway is closed; the goroutine must then
// defer leave.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.work.Add(1)
	return true
}

// leave must be deferred directly, so that it can recover from a panic.
func (g *Gateway) leave(what string) {
	if p := recover(); p != nil {
		g.broken.Store(true)
		g.log.Error("network of a sandbox cut after a panic", "in", what, "panic", p, "stack", string(debug.Stack()))
		g.cut()
	}
	g.work.Done()
}

// cut ends everything without waiting for it.
func (g *Gateway) cut() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.link.close()
}

// Close cuts all flows and frees all resources of the gateway; the sandbox's interface is dead
// afterwards. It may be called more than once.
func (g *Gateway) Close() {
	g.once.Do(func() {
		g.cut()
		defer g.network.gateways.remove(g)
		if g.broken.Load() {
			go g.stack.Destroy() // its locks may be held for ever: a leak is better than a blocked caller
			return
		}
		idle := make(chan struct{})
		go func() {
			g.work.Wait()
			close(idle)
		}()
		for {
			// Repeatedly, because a handshake may just have begun.
			for _, ep := range g.stack.RegisteredEndpoints() {
				ep.Abort()
			}
			select {
			case <-idle:
				g.stack.Destroy()
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

// Usage returns the counters so far. It also works on a closed gateway.
func (g *Gateway) Usage() Usage {
	g.budget.mu.Lock()
	free := g.budget.flows
	g.budget.mu.Unlock()
	return Usage{
		SentBytes:     g.usage.sent.Load(),
		ReceivedBytes: g.usage.received.Load(),
		Flows:         g.network.perBox.flows - free,
		Denied:        g.usage.denied.Load(),
		DroppedFrames: g.usage.dropped.Load(),
	}
}

// take takes a flow that wants extra bytes from the sandbox's budget and from the total budget.
func (g *Gateway) take(extra int64) (*lease, bool) {
	return take(extra, &g.budget, &g.network.total)
}
