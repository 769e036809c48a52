package egress_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/egress"
)

// echoServer echoes data, and closes when the other side has closed its direction.
func echoServer(tb testing.TB) string {
	return serve(tb, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
}

func TestTCPEcho(t *testing.T) {
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	c := g.mustDial(echoServer(t))
	want := []byte("hello out there")
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("echo = %q, %v", got, err)
	}
	if u := gw.Usage(); u.SentBytes < int64(len(want)) || u.ReceivedBytes < int64(len(want)) || u.Flows != 1 {
		t.Errorf("usage = %+v", u)
	}
	_ = c.Close()
	eventually(t, "flow freed", func() bool { return gw.Usage().Flows == 0 })
}

// The client closes its direction, and gets the whole answer afterwards.
func TestTCPHalfClose(t *testing.T) {
	answer := strings.Repeat("answer ", 100_000)
	asked := make(chan string, 1)
	addr := serve(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		asked <- string(b)
		_, _ = io.WriteString(c, answer)
	})
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	c := g.mustDial(addr)
	if _, err := io.WriteString(c, "question"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != answer {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(answer))
	}
	if q := <-asked; q != "question" {
		t.Errorf("server read %q", q)
	}
	eventually(t, "flow freed", func() bool { return gw.Usage().Flows == 0 })
}

// Large concurrent transfers in both directions, on several connections, lose no byte.
func TestTCPTransfers(t *testing.T) {
	const size, conns = 16 << 20, 4
	data := make([]byte, size)
	_, _ = rand.Read(data)
	want := sha256.Sum256(data)
	sums := make(chan [32]byte, conns)
	addr := serve(t, func(c *net.TCPConn) {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = c.Write(data)
			_ = c.CloseWrite()
		})
		h := sha256.New()
		_, _ = io.Copy(h, c)
		wg.Wait()
		sums <- [32]byte(h.Sum(nil))
	})
	_, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	var wg sync.WaitGroup
	for range conns {
		c := g.mustDial(addr)
		wg.Go(func() {
			if _, err := c.Write(data); err != nil {
				t.Errorf("upload: %v", err)
			}
			_ = c.CloseWrite()
		})
		wg.Go(func() {
			h := sha256.New()
			n, err := io.Copy(h, c)
			if got := [32]byte(h.Sum(nil)); err != nil || got != want {
				t.Errorf("download of %d bytes: %v, sums equal: %t", n, err, got == want)
			}
		})
	}
	wg.Wait()
	for range conns {
		if got := <-sums; got != want {
			t.Error("an upload arrived changed")
		}
	}
}

// Connections that the host refuses are refused in the guest, at once.
func TestTCPRefused(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := seen(l.Addr())
	_ = l.Close()
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	if _, err := g.dial(addr); err == nil || !strings.Contains(err.Error(), "connection was refused") {
		t.Errorf("dial = %v, want refused", err)
	}
	if d := gw.Usage().Denied; d != 0 {
		t.Errorf("denied = %d; nothing was", d)
	}
}

// A reset on one side is a reset on the other.
func TestTCPReset(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		addr := serve(t, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetLinger(0)
		})
		gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
		c := g.mustDial(addr)
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read = %v, want a reset", err)
		}
		eventually(t, "flow freed", func() bool { return gw.Usage().Flows == 0 })
	})
	t.Run("guest", func(t *testing.T) {
		arrived, got := make(chan struct{}), make(chan error, 1)
		addr := serve(t, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			close(arrived)
			_, err := c.Read(make([]byte, 1))
			got <- err
		})
		_, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
		c := g.mustDial(addr)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		<-arrived
		for _, ep := range g.stack.RegisteredEndpoints() {
			ep.Abort()
		}
		if err := <-got; err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read = %v, want a reset", err)
		}
	})
}
