package egress_test

import (
	"io"
	"net"
	"testing"

	"github.com/modbox/modbox/internal/egress"
)

// BenchmarkTransfer transfers data between a guest and a server of the host. Both stacks and the
// server share the machine.
func BenchmarkTransfer(b *testing.B) {
	const size = 64 << 20
	data := make([]byte, 1<<20)
	b.Run("down", func(b *testing.B) {
		_, g := attachWith(b, egress.Config{AllowCIDRs: loopback})
		addr := serve(b, func(c *net.TCPConn) {
			for range size / len(data) {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		})
		b.SetBytes(size)
		for b.Loop() {
			c := g.mustDial(addr)
			if n, err := io.Copy(io.Discard, c); n != size {
				b.Fatal(n, err)
			}
			_ = c.Close()
		}
	})
	b.Run("up", func(b *testing.B) {
		_, g := attachWith(b, egress.Config{AllowCIDRs: loopback})
		got := make(chan int64, 1)
		addr := serve(b, func(c *net.TCPConn) {
			n, _ := io.Copy(io.Discard, struct{ io.Reader }{c})
			got <- n
		})
		b.SetBytes(size)
		for b.Loop() {
			c := g.mustDial(addr)
			for range size / len(data) {
				if _, err := c.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			_ = c.Close()
			if n := <-got; n != size {
				b.Fatal(n)
			}
		}
	})
}

// BenchmarkDial connects, exchanges a byte and closes.
func BenchmarkDial(b *testing.B) {
	_, g := attachWith(b, egress.Config{AllowCIDRs: loopback})
	addr := echoServer(b)
	buf := []byte{1}
	for b.Loop() {
		c := g.mustDial(addr)
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
}

// BenchmarkRoundTrip sends a byte and waits for it, on a connection.
func BenchmarkRoundTrip(b *testing.B) {
	_, g := attachWith(b, egress.Config{AllowCIDRs: loopback})
	c := g.mustDial(echoServer(b))
	buf := []byte{1}
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAttach makes gateways, and reports the memory of each.
func BenchmarkAttach(b *testing.B) {
	n := testNetwork(b, egress.Config{})
	b.ReportAllocs()
	for b.Loop() {
		g, nic, err := n.Attach("box")
		if err != nil {
			b.Fatal(err)
		}
		_ = nic.File.Close()
		g.Close()
	}
}
