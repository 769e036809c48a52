package egress_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/modbox/modbox/internal/egress"
)

// loopback opens the host's loopback, where the tests' servers listen, to a sandbox.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

var discard = slog.New(slog.DiscardHandler)

// outside is an address that leads to the servers of the tests.
var outside = netip.MustParseAddr("203.0.113.1")

// timeout bounds everything that should happen quickly.
const timeout = 2 * time.Minute

// testNetwork returns a network for gateways of the test.
func testNetwork(tb testing.TB, cfg egress.Config) *egress.Network {
	tb.Helper()
	cfg.Log = discard
	n, err := egress.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	n.RouteToLoopback(outside)
	n.SetTimeouts(timeout)
	return n
}

// attach makes a gateway and the network stack of a guest behind it.
func attach(tb testing.TB, n *egress.Network) (*egress.Gateway, *guest) {
	tb.Helper()
	g, nic, err := n.Attach("box")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return g, newGuest(tb, nic)
}

// attachWith does the same on a new network with a configuration.
func attachWith(tb testing.TB, cfg egress.Config) (*egress.Gateway, *guest) {
	tb.Helper()
	return attach(tb, testNetwork(tb, cfg))
}

// guest is a network stack at the sandbox's end, configured like gVisor's.
type guest struct {
	tb    testing.TB
	stack *stack.Stack
	// vanish ends the guest and its end of the link.
	vanish func()
}

func newGuest(tb testing.TB, nic egress.NIC) *guest {
	tb.Helper()
	fd, err := unix.Dup(int(nic.File.Fd()))
	if err != nil {
		tb.Fatal(err)
	}
	_ = nic.File.Close()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	link, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: uint32(nic.MTU), EthernetHeader: true, Address: tcpip.LinkAddress(nic.MAC),
		PacketDispatchMode: fdbased.RecvMMsg, TXChecksumOffload: true, RXChecksumOffload: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	check := func(err tcpip.Error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	check(s.CreateNIC(1, link))
	check(s.AddProtocolAddress(1, tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFrom4(nic.Address.Addr().As4()), PrefixLen: nic.Address.Bits(),
		},
	}, stack.AddressProperties{}))
	s.SetRouteTable([]tcpip.Route{{
		Destination: header.IPv4EmptySubnet, Gateway: tcpip.AddrFrom4(nic.Gateway.As4()), NIC: 1,
	}})
	g := &guest{tb: tb, stack: s, vanish: sync.OnceFunc(func() {
		s.Destroy()
		_ = unix.Close(fd)
	})}
	tb.Cleanup(g.vanish)
	return g
}

func full(addr netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(addr.Addr().As4()), Port: addr.Port()}
}

// dial connects by TCP.
func (g *guest) dial(addr string) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.stack, full(netip.MustParseAddrPort(addr)), ipv4.ProtocolNumber)
}

// mustDial connects by TCP, and closes the connection with the test.
func (g *guest) mustDial(addr string) *gonet.TCPConn {
	g.tb.Helper()
	c, err := g.dial(addr)
	if err != nil {
		g.tb.Fatalf("dial %s: %v", addr, err)
	}
	g.tb.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(timeout))
	return c
}

// dialUDP returns a socket connected to an address.
func (g *guest) dialUDP(addr string) *gonet.UDPConn {
	g.tb.Helper()
	to := full(netip.MustParseAddrPort(addr))
	c, err := gonet.DialUDP(g.stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		g.tb.Fatalf("dial udp %s: %v", addr, err)
	}
	g.tb.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(timeout))
	return c
}

// refusal sends a datagram and waits until the socket learns that it was refused. The guest's stack
// does not wake readers for that, so refusal polls.
func refusal(tb testing.TB, c *gonet.UDPConn) {
	tb.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "refusal of "+c.RemoteAddr().String(), func() bool {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return err != nil && strings.Contains(err.Error(), "refused")
	})
}

// seen returns the address under which a guest reaches a server on loopback.
func seen(local net.Addr) string {
	return netip.AddrPortFrom(outside, netip.MustParseAddrPort(local.String()).Port()).String()
}

// serve calls handle for each connection to the returned address.
func serve(tb testing.TB, handle func(*net.TCPConn)) string {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	tb.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return seen(l.Addr())
}

// eventually waits until ok returns true.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %s", what, timeout)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
