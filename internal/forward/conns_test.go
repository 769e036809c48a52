package forward

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestConns checks that connections reach the active server with the addresses of their clients, and end when another server is active.
func TestConns(t *testing.T) {
	s := newStandby(t)
	clients, servers := listen(t), listen(t)
	ended := make(chan error, 1)
	go func() {
		ended <- s.ServeConns(clients, func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		})
	}()
	accepted, reached := AcceptConns(servers), make(chan struct{}, 2)
	go func() {
		for {
			conn, err := accepted.Accept()
			if err != nil {
				return
			}
			reached <- struct{}{}
			go func() {
				defer conn.Close()
				text, err := io.ReadAll(conn) // until the client has ended its direction
				_, _ = fmt.Fprintf(conn, "%s from %s, %v", text, conn.RemoteAddr(), err)
			}()
		}
	}()
	dial := func() *net.TCPConn {
		t.Helper()
		conn, err := net.Dial("tcp", clients.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn.(*net.TCPConn)
	}
	early := dial() // it waits for an active server
	text := strings.Repeat("text", 1<<16)
	go func() {
		_, _ = io.WriteString(early, text)
		_ = early.CloseWrite()
	}()
	s.lead(servers.Addr().String(), 1)
	if got, err := io.ReadAll(early); err != nil || string(got) != fmt.Sprintf("%s from %s, <nil>", text, early.LocalAddr()) {
		t.Errorf("the answer has %d bytes, %v", len(got), err)
	}
	raw, err := net.Dial("tcp", servers.Addr().String()) // a client that lies, if it could come here
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_, _ = io.WriteString(raw, strings.Repeat("x", 2*maxGreeting))
	if got, _ := io.ReadAll(raw); len(got) != 0 {
		t.Errorf("a connection without the address of its client got %q", got)
	}
	open := dial()
	if _, err := io.WriteString(open, "text"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the early connection, and this
		<-reached
	}
	s.lead(servers.Addr().String(), 2)
	if got, _ := io.ReadAll(open); len(got) != 0 {
		t.Errorf("a connection to a server that was replaced got %q", got)
	}
	_ = clients.Close()
	if err := <-ended; err == nil {
		t.Error("ServeConns() ended without an error")
	}
}
