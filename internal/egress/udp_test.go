package egress_test

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/egress"
)

// echoUDP echoes datagrams.
func echoUDP(tb testing.TB) string {
	tb.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
	tb.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return seen(c.LocalAddr())
}

func TestUDPEcho(t *testing.T) {
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	addr := echoUDP(t)
	c := g.dialUDP(addr)
	// Empty, small, as large as fits into a frame, and the largest, in fragments.
	for _, size := range []int{0, 1, 1400, egress.MTU - 28, 65507} {
		want := bytes.Repeat([]byte{'u'}, size)
		if _, err := c.Write(want); err != nil {
			t.Fatalf("write %d bytes: %v", size, err)
		}
		got := make([]byte, 1<<16)
		n, err := c.Read(got)
		if err != nil || !bytes.Equal(got[:n], want) {
			t.Fatalf("echo of %d bytes = %d bytes, %v", size, n, err)
		}
	}
	if u := gw.Usage(); u.Flows != 1 {
		t.Errorf("flows = %d, want 1 for one socket", u.Flows)
	}
}

// Nobody listens: the guest gets an error.
func TestUDPRefused(t *testing.T) {
	l, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := seen(l.LocalAddr())
	_ = l.Close()
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	refusal(t, g.dialUDP(addr))
	eventually(t, "flow freed", func() bool { return gw.Usage().Flows == 0 })
}

// With more flows than a sandbox may have, the quietest flows end, and no flow is blocked for good.
func TestUDPFlowsBounded(t *testing.T) {
	const most = 8
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback, MaxFlows: most})
	addr := echoUDP(t)
	for i := range 5 * most {
		c := g.dialUDP(addr)
		want := fmt.Sprint("datagram ", i)
		got := make([]byte, 64)
		eventually(t, want, func() bool {
			if _, err := c.Write([]byte(want)); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			n, err := c.Read(got)
			return err == nil && string(got[:n]) == want
		})
		if u := gw.Usage(); u.Flows > most {
			t.Fatalf("flows = %d, want at most %d", u.Flows, most)
		}
	}
}
