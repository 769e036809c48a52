package conns_test

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/conns"
	"github.com/modbox/modbox/internal/sandbox"
)

// clients are the connections of a test, by address.
type clients struct {
	t       *testing.T
	tracker *conns.Tracker
	dial    chan net.Conn
	listen  net.Listener
}

func (c *clients) Accept() (net.Conn, error) {
	if conn, ok := <-c.dial; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (c *clients) Close() error   { return nil }
func (c *clients) Addr() net.Addr { return &net.TCPAddr{} }

func newClients(t *testing.T, limits conns.Limits, trusted ...netip.Prefix) *clients {
	c := &clients{t: t, tracker: conns.New(limits, trusted), dial: make(chan net.Conn, 2)}
	c.listen = c.tracker.Listen(c)
	return c
}

// from is a connection with a given remote address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// connect returns both ends of a connection from an address; the server's end is nil when it is
// refused.
func (c *clients) connect(addr string) (client, server net.Conn) {
	c.t.Helper()
	client, far := net.Pipe()
	c.t.Cleanup(func() { client.Close() })
	c.dial <- from{far, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))}
	close(c.dial)
	server, err := c.listen.Accept()
	c.dial = make(chan net.Conn, 2)
	if err != nil {
		return client, nil
	}
	return client, server
}

// request begins a request on a connection, by user unless that is "".
func (c *clients) request(conn net.Conn, remote, user string) (end func(), err error) {
	c.t.Helper()
	c.tracker.State(conn, http.StateActive)
	r, _ := http.NewRequestWithContext(c.tracker.Context(c.t.Context(), conn), "GET", "/", nil)
	r.RemoteAddr = remote
	setUser, end, err := c.tracker.Begin(r)
	if err == nil && user != "" {
		err = setUser(user)
	}
	return end, err
}

// closed reports whether the server has closed the connection; call it only when the server sends nothing.
func closed(client net.Conn) bool {
	_, err := client.Write([]byte("x"))
	return err == io.ErrClosedPipe
}

func TestStrangersGoFirst(t *testing.T) {
	c := newClients(t, conns.Limits{Max: 3})
	_, known := c.connect("192.0.2.1:1")
	end, err := c.request(known, "192.0.2.1:1", "user")
	if err != nil {
		t.Fatal(err)
	}
	end()
	c.tracker.State(known, http.StateIdle)
	first, _ := c.connect("192.0.2.2:1")
	_, busy := c.connect("192.0.2.3:1")
	if _, err := c.request(busy, "192.0.2.3:1", ""); err != nil {
		t.Fatal(err)
	}
	if _, made := c.connect("192.0.2.4:1"); made == nil || !closed(first) {
		t.Error("the oldest idle connection without a token does not go first")
	}
	if _, made := c.connect("192.0.2.5:1"); made == nil {
		t.Error("a fifth connection is refused although strangers are idle")
	} else if _, err := c.request(made, "192.0.2.5:1", "user"); err != nil {
		t.Error(err)
	}
	// Only the signed-in connection is idle now; it is closed before a new one is refused.
	if _, made := c.connect("192.0.2.6:1"); made == nil {
		t.Error("a connection is refused although one is idle")
	} else if _, err := c.request(made, "192.0.2.6:1", ""); err != nil {
		t.Error(err)
	}
	if _, made := c.connect("192.0.2.7:1"); made != nil {
		t.Error("a connection is accepted although all are busy")
	}
	want := conns.Counts{SignedIn: 1, Anonymous: 2, Refused: 1, Evicted: 3}
	if diff := cmp.Diff(want, c.tracker.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestOneAddress(t *testing.T) {
	c := newClients(t, conns.Limits{Max: 100, PerAddress: 2})
	for _, addr := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1"} {
		_, conn := c.connect(addr)
		if _, err := c.request(conn, addr, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, made := c.connect("[2001:db8::3]:1"); made != nil {
		t.Error("a third busy connection from one /64 is accepted")
	}
	_, other := c.connect("[2001:db8:0:1::1]:1")
	if other == nil {
		t.Fatal("a neighbour is refused")
	}
	if _, err := c.request(other, "[2001:db8:0:1::1]:1", "user"); err != nil {
		t.Fatal(err)
	}
	// Signed-in connections do not count, nor do closed connections.
	for range 2 {
		if _, made := c.connect("[2001:db8:0:1::1]:1"); made == nil {
			t.Error("signed-in connections count among the strangers of their address")
		}
	}
	for range 10 {
		_, made := c.connect("192.0.2.1:1")
		if made == nil {
			t.Fatal("closed connections count")
		}
		if _, err := c.request(made, "192.0.2.1:1", ""); err != nil {
			t.Fatal(err)
		}
		made.Close()
	}
}

func TestClientsOfATrustedProxy(t *testing.T) {
	proxy := "10.0.0.1:1"
	c := newClients(t, conns.Limits{Max: 100, PerAddress: 2}, netip.MustParsePrefix("10.0.0.0/8"))
	var ends []func()
	for range 10 {
		_, conn := c.connect(proxy)
		if conn == nil {
			t.Fatal("a connection of the proxy is refused")
		}
		end, err := c.request(conn, "203.0.113.7:0", "")
		if err == nil {
			ends = append(ends, end)
		} else if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
			t.Error(err)
		}
	}
	if len(ends) != 2 {
		t.Errorf("%d requests of one client were let through, want 2", len(ends))
	}
	_, conn := c.connect(proxy)
	if _, err := c.request(conn, "203.0.113.8:0", ""); err != nil {
		t.Errorf("another client: %v", err)
	}
	ends[0]()
	end, err := c.request(conn, "203.0.113.7:0", "user")
	if err != nil {
		t.Fatalf("after one ended: %v", err)
	}
	if _, err := c.request(conn, "203.0.113.7:0", ""); err != nil {
		t.Errorf("a signed-in request counts among the strangers of its address: %v", err)
	}
	end()
}

func TestOneUser(t *testing.T) {
	c := newClients(t, conns.Limits{PerUser: 2})
	_, conn := c.connect("192.0.2.1:1")
	end, err := c.request(conn, "192.0.2.1:1", "user")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.request(conn, "192.0.2.1:1", "user"); err != nil {
		t.Fatal(err)
	}
	refused, err := c.request(conn, "192.0.2.1:1", "user")
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("the third request: %v, want code quota_exceeded", err)
	}
	refused()
	if _, err := c.request(conn, "192.0.2.1:1", "other"); err != nil {
		t.Errorf("another user: %v", err)
	}
	end()
	if _, err := c.request(conn, "192.0.2.1:1", "user"); err != nil {
		t.Errorf("after one ended: %v", err)
	}
}
