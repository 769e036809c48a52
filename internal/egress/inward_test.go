package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

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
