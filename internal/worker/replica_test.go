package worker

import (
	"crypto/tls"
	"io"
	"testing"
	"time"
)

// TestFromServers checks that connections for a protocol of servers are accepted from servers with the authority alone, and only while somebody listens for them.
func TestFromServers(t *testing.T) {
	c, other := newControl(t), newControl(t)
	address := c.Addr().String()
	if conn, err := c.authority.Dial(t.Context(), address, Forwarded); err == nil {
		_ = conn.Close()
		t.Error("a server connects before the other accepts it")
	}
	l := c.FromServers(Forwarded)
	accepted := make(chan string, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			text := make([]byte, 5)
			_, _ = io.ReadFull(conn, text)
			_ = conn.Close()
			accepted <- string(text)
		}
	}()
	conn, err := c.authority.Dial(t.Context(), address, Forwarded)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if text := <-accepted; text != "hello" {
		t.Errorf("the other server got %q", text)
	}
	_ = conn.Close()

	if conn, err := other.authority.Dial(t.Context(), address, Forwarded); err == nil {
		_ = conn.Close()
		t.Error("a server with another authority connects")
	}
	d := c.dialer(t, c.token)
	if err := d.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	foreign := other.dialer(t, other.token)
	if err := foreign.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	own, err := c.authority.own(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		protocol string
		certs    []tls.Certificate
	}{
		"a worker forwards":               {Forwarded, []tls.Certificate{*d.cert}},
		"a worker of others forwards":     {Forwarded, []tls.Certificate{*foreign.cert}},
		"nobody forwards":                 {Forwarded, nil},
		"a server is a worker":            {protocolConnect, []tls.Certificate{*own}},
		"a server leaves as a worker":     {protocolLeave, []tls.Certificate{*own}},
		"a worker has an unknown purpose": {"modbox-other/1", []tls.Certificate{*d.cert}},
	} {
		conn, err := d.dial(t.Context(), try.protocol, try.certs...)
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = conn.Write([]byte("hello")) // in TLS 1.3 the client hears of it with its first read
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: it gets an answer", name)
		}
		_ = conn.Close()
	}
	select {
	case id := <-c.attached:
		t.Errorf("%s was attached", id)
	case text := <-accepted:
		t.Errorf("another got a connection of a server: %q", text)
	default:
	}
	_ = l.Close()
	<-accepted
	if conn, err := c.authority.Dial(t.Context(), address, Forwarded); err == nil {
		_ = conn.Close()
		t.Error("a server connects after the other has stopped")
	}
}
