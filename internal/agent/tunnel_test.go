package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// listen runs a server on the loopback interface and returns its port.
func listen(t *testing.T, address string, answer func(*net.TCPConn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c.(*net.TCPConn))
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// dialTunnel connects to a port through the agent.
func (e *env) dialTunnel(t *testing.T, port uint16) net.Conn {
	t.Helper()
	c, err := e.Tunnel(t.Context(), port)
	if err != nil {
		t.Fatalf("Tunnel(%d) = %v", port, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// eachWay runs a test of tunnels that share a connection by HTTP/2, and of tunnels with connections of their own.
func eachWay(t *testing.T, test func(*testing.T, *env)) {
	t.Run("shared", func(t *testing.T) { test(t, start(t)) })
	t.Run("direct", func(t *testing.T) { test(t, startDirect(t).env) })
}

func echo(c *net.TCPConn) { io.Copy(c, c) }

func TestTunnelIntegrity(t *testing.T) { eachWay(t, testTunnelIntegrity) }

func testTunnelIntegrity(t *testing.T, e *env) {
	const size = 64 << 20
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", echo))
	want, got := sha256.New(), sha256.New()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{3}), size), want))
		sent <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
	}()
	n, err := io.Copy(got, c)
	if err := <-sent; err != nil {
		t.Fatalf("sending: %v", err)
	}
	if err != nil || n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("got %d of %d bytes back, %v", n, size, err)
	}
}

func TestTunnelReachesIPv6(t *testing.T) { eachWay(t, testTunnelReachesIPv6) }

func testTunnelReachesIPv6(t *testing.T, e *env) {
	c := e.dialTunnel(t, listen(t, "[::1]:0", echo))
	if _, err := c.Write([]byte("six")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "six" {
		t.Errorf("Read() = %q, %v", got, err)
	}
}

func TestTunnelServerClosesFirst(t *testing.T) { eachWay(t, testTunnelServerClosesFirst) }

func testTunnelServerClosesFirst(t *testing.T, e *env) {
	heard := make(chan string, 1)
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		io.WriteString(c, "bye")
		c.CloseWrite()
		rest, _ := io.ReadAll(c)
		heard <- string(rest)
	}))
	if got, err := io.ReadAll(c); err != nil || string(got) != "bye" {
		t.Fatalf("ReadAll() = %q, %v", got, err)
	}
	io.WriteString(c, "but wait")
	c.(interface{ CloseWrite() error }).CloseWrite()
	if got := <-heard; got != "but wait" {
		t.Errorf("the server heard %q", got)
	}
}

func TestTunnelTellsAResetFromAnEnd(t *testing.T) { eachWay(t, testTunnelTellsAResetFromAnEnd) }

func testTunnelTellsAResetFromAnEnd(t *testing.T, e *env) {
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	}))
	c.Write([]byte("x"))
	if n, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("Read() after a reset = %d, %v, want an error that is not io.EOF", n, err)
	}
}

func TestTunnelClosedPort(t *testing.T) { eachWay(t, testTunnelClosedPort) }

func testTunnelClosedPort(t *testing.T, e *env) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	if _, err := e.Tunnel(t.Context(), port); code(t, err) != agentapi.CodePortClosed {
		t.Errorf("Tunnel() = %v", err)
	}
	if _, err := e.Tunnel(t.Context(), 0); code(t, err) != agentapi.CodeInvalid {
		t.Errorf("Tunnel(0) = %v", err)
	}
}

func TestTunnelDeadlines(t *testing.T) { eachWay(t, testTunnelDeadlines) }

func testTunnelDeadlines(t *testing.T, e *env) {
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		io.WriteString(c, "late")
		select {} // and does not read any more
	}))
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read() = %v, want a deadline", err)
	}
	c.SetReadDeadline(time.Time{})
	c.Write([]byte("x"))
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "late" {
		t.Errorf("Read() after the deadline was lifted = %q, %v", got, err)
	}
	c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write() = %v, want a deadline", err)
			}
			return
		}
	}
}

func TestTunnelOutlivesItsContext(t *testing.T) { eachWay(t, testTunnelOutlivesItsContext) }

func testTunnelOutlivesItsContext(t *testing.T, e *env) {
	port := listen(t, "127.0.0.1:0", echo)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := e.Tunnel(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	io.WriteString(c, "hi")
	got := make([]byte, 2)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hi" {
		t.Errorf("Read() = %q, %v", got, err)
	}
}

func TestTunnelCloseReachesTheServer(t *testing.T) { eachWay(t, testTunnelCloseReachesTheServer) }

func testTunnelCloseReachesTheServer(t *testing.T, e *env) {
	ended := make(chan struct{})
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		io.Copy(io.Discard, c)
		close(ended)
	}))
	c.Close()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Error("the server's connection is still open")
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("Read() after Close() succeeded")
	}
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("Write() after Close() succeeded")
	}
}

// TestTunnelAborts closes a tunnel whose server neither reads nor writes, with data in transit.
func TestTunnelAborts(t *testing.T) { eachWay(t, testTunnelAborts) }

func testTunnelAborts(t *testing.T, e *env) {
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", func(*net.TCPConn) { select {} }))
	c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			break
		}
	}
	c.Close()
	for end := time.Now().Add(time.Minute); e.agent.Tunnels() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the tunnel stays open")
		}
	}
}

// TestTunnelEndsWithTheAgent closes the agent beneath a tunnel.
func TestTunnelEndsWithTheAgent(t *testing.T) { eachWay(t, testTunnelEndsWithTheAgent) }

func testTunnelEndsWithTheAgent(t *testing.T, e *env) {
	c := e.dialTunnel(t, listen(t, "127.0.0.1:0", echo))
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	e.agent.Close()
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, agentapi.ErrUnreachable) {
		t.Errorf("Read() = %d, %v, want ErrUnreachable", n, err)
	}
}

// TestManyTunnels opens more tunnels than have a connection of their own.
func TestManyTunnels(t *testing.T) {
	e := startDirect(t)
	port := listen(t, "127.0.0.1:0", echo)
	for i := range 200 {
		c := e.dialTunnel(t, port)
		got := make([]byte, 4)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatalf("tunnel %d: %v", i, err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
			t.Fatalf("tunnel %d: Read() = %q, %v", i, got, err)
		}
	}
	if _, err := e.Health(t.Context()); err != nil {
		t.Errorf("Health() beside the tunnels = %v", err)
	}
}

func BenchmarkTunnelDownload(b *testing.B) {
	e := start(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 1<<20)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	c, err := e.Tunnel(b.Context(), uint16(l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpload(b *testing.B) {
	e := start(b)
	const size = 100 << 20
	b.SetBytes(size)
	for b.Loop() {
		if _, err := e.WriteFile(b.Context(), "/f", io.LimitReader(zeros{}, size), agentapi.WriteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDownload(b *testing.B) {
	e := start(b)
	const size = 100 << 20
	if _, err := e.WriteFile(b.Context(), "/f", io.LimitReader(zeros{}, size), agentapi.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		body, _, err := e.ReadFile(b.Context(), "/f", 0, -1)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, body); err != nil || n != size {
			b.Fatal(n, err)
		}
		body.Close()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
