package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/modbox/modbox/internal/egress"
)

// listen calls handle for each connection to a port of the guest.
func (g *guest) listen(port uint16, handle func(net.Conn)) {
	g.tb.Helper()
	l, err := gonet.ListenTCP(g.stack, full(netip.AddrPortFrom(egress.GuestPrefix.Addr(), port)), ipv4.ProtocolNumber)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
}

// inward dials a port of the guest.
func inward(tb testing.TB, g *egress.Gateway, port uint16) net.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	c, err := g.Dial(ctx, port)
	if err != nil {
		tb.Fatalf("Dial(%d) = %v", port, err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(timeout))
	return c
}

func TestDialHalfClosed(t *testing.T) {
	g, guest := attachWith(t, egress.Config{})
	guest.listen(80, func(c net.Conn) {
		all, err := io.ReadAll(c)
		if err != nil {
			t.Errorf("the server read %v", err)
		}
		_, _ = c.Write(append([]byte("got "), all...))
	})
	c := inward(t, g, 80)
	if _, err := c.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "got question" {
		t.Errorf("ReadAll() = %q, %v", got, err)
	}
	_ = c.Close()
	eventually(t, "end of the flow", func() bool { return g.Usage().Flows == 0 })
}

func TestDialRefused(t *testing.T) {
	g, _ := attachWith(t, egress.Config{})
	if _, err := g.Dial(t.Context(), 81); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial() of a port nobody listens on = %v", err)
	}
	if n := g.Usage().Flows; n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	g, guest := attachWith(t, egress.Config{})
	guest.vanish() // so that nothing answers
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := g.Dial(ctx, 80); err == nil {
		_ = c.Close()
		t.Error("Dial() with a dead context succeeded")
	}
}

func TestDialFlowsAreLimited(t *testing.T) {
	g, guest := attachWith(t, egress.Config{MaxFlows: 1})
	guest.listen(80, func(c net.Conn) { _, _ = io.Copy(c, c) })
	first := inward(t, g, 80)
	if _, err := g.Dial(t.Context(), 80); err == nil {
		t.Error("Dial() beyond the flows succeeded")
	}
	_ = first.Close()
	eventually(t, "end of the flow", func() bool { return g.Usage().Flows == 0 })
	inward(t, g, 80)
}

func TestCloseEndsDialed(t *testing.T) {
	g, guest := attachWith(t, egress.Config{})
	guest.listen(80, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	c := inward(t, g, 80)
	g.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Read() after the gateway was closed = %v, want a reset", err)
	}
	_ = c.Close()
	if n := g.Usage().Flows; n != 0 {
		t.Errorf("%d flows are left", n)
	}
	if _, err := g.Dial(t.Context(), 80); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial() of a closed gateway = %v", err)
	}
}

// A gateway for a sandbox without a network leads inward only, even if the guest gives itself a
// default route.
func TestInwardOnly(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	resolver := netip.MustParseAddrPort(udp.LocalAddr().String())
	n := testNetwork(t, egress.Config{AllowCIDRs: loopback, Resolvers: []netip.AddrPort{resolver}})
	g, nic, err := n.AttachInward("box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if !nic.LinkOnly {
		t.Error("the interface has a default route")
	}
	guest := newGuest(t, nic)
	guest.listen(80, func(c net.Conn) { _, _ = io.Copy(c, c) })

	ctx, cancel := context.WithCancel(t.Context())
	var dials sync.WaitGroup
	defer dials.Wait()
	defer cancel()
	port := uint16(tcp.Addr().(*net.TCPAddr).Port)
	for _, addr := range []netip.AddrPort{netip.AddrPortFrom(outside, port), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)} {
		dials.Go(func() {
			if c, err := gonet.DialContextTCP(ctx, guest.stack, full(addr), ipv4.ProtocolNumber); err == nil {
				t.Errorf("the guest has connected to %s", addr)
				_ = c.Close()
			}
		})
	}
	question := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
	packed, err := question.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"10.0.0.1:53", netip.AddrPortFrom(outside, resolver.Port()).String()} {
		_, _ = guest.dialUDP(to).Write(packed)
	}
	// The gateway reads in order: what was sent before is dropped when this is refused.
	if c, err := guest.dial("10.0.0.1:53"); err == nil {
		_ = c.Close()
		t.Error("the gateway answers DNS")
	}
	c := inward(t, g, 80)
	if _, err := c.Write([]byte("echo")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Errorf("a connection to the guest: %v", err)
	}
	soon := time.Now().Add(100 * time.Millisecond)
	_ = tcp.(*net.TCPListener).SetDeadline(soon)
	if c, err := tcp.Accept(); err == nil {
		_ = c.Close()
		t.Error("a connection has left the gateway")
	}
	_ = udp.SetReadDeadline(soon)
	if _, _, err := udp.ReadFrom(packed); err == nil {
		t.Error("a datagram has left the gateway")
	}
	if u := g.Usage(); u.Flows != 1 {
		t.Errorf("%d flows, want the one from outside", u.Flows)
	}
}
