package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/egress"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestClosedAddresses(t *testing.T) {
	n := testNetwork(t, egress.Config{})
	closed := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.0.0.2", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
		"127.0.0.1", "127.1.2.3", "168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
		"224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
		// All forms in which IPv6 embeds an IPv4 address, and IPv6 itself.
		"::", "::1", "::ffff:169.254.169.254", "::ffff:8.8.8.8", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "fd00:ec2::254", "fe80::1", "2606:4700::1111",
	}
	for _, s := range closed {
		if err := n.CheckClosed(netip.MustParseAddr(s)); !errors.Is(err, egress.ErrClosed) {
			t.Errorf("%s: %v, want closed", s, err)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "223.255.255.254"} {
		if err := n.CheckClosed(netip.MustParseAddr(s)); errors.Is(err, egress.ErrClosed) {
			t.Errorf("%s: %v, want open", s, err)
		}
	}
}

// All of the host's own addresses are closed, whatever range they are in.
func TestHostClosed(t *testing.T) {
	n := testNetwork(t, egress.Config{})
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.CheckClosed(p.Addr()); !errors.Is(err, egress.ErrClosed) {
			t.Errorf("%s is the host's: %v, want closed", p.Addr(), err)
		}
	}
}

func TestAllowCIDRs(t *testing.T) {
	n := testNetwork(t, egress.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.7.0/24")}})
	for s, open := range map[string]bool{
		"10.1.2.3": true, "192.168.7.9": true, "192.168.8.9": false, "169.254.169.254": false,
		"10.0.0.1": false, "10.0.0.77": false, // the sandbox's own link
		"::ffff:10.1.2.3": false,
	} {
		err := n.CheckClosed(netip.MustParseAddr(s))
		if got := !errors.Is(err, egress.ErrClosed); got != open {
			t.Errorf("%s: open = %t (%v), want %t", s, got, err, open)
		}
	}
}

func TestConfigInvalid(t *testing.T) {
	for field, cfg := range map[string]egress.Config{
		"allow_cidrs[0]": {AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00::/8")}},
		"allow_cidrs[1]": {AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}}},
		"resolvers[0]":   {Resolvers: []netip.AddrPort{{}}},
		"":               {MaxFlows: -1},
	} {
		cfg.Log = discard
		_, err := egress.New(cfg)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || e.Field != field {
			t.Errorf("New = %v, want invalid %q", err, field)
		}
	}
	if _, err := egress.New(egress.Config{}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("New without a logger = %v", err)
	}
}

// A closed destination is refused in the guest at once, by every protocol, and nothing reaches the
// host.
func TestDenied(t *testing.T) {
	gw, g := attachWith(t, egress.Config{})
	for _, addr := range []string{"169.254.169.254:80", "10.0.0.1:22", "10.0.0.9:80", "192.168.0.1:443", seen(listen(t).Addr())} {
		if _, err := g.dial(addr); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("tcp %s = %v, want refused", addr, err)
		}
		refusal(t, g.dialUDP(addr))
	}
	if u := gw.Usage(); u.Denied != 10 || u.Flows != 0 {
		t.Errorf("usage = %+v, want 10 denied", u)
	}
}

// listen returns a listener on loopback to which nothing may connect.
func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			tb.Error("a connection that is closed to sandboxes was made")
		}
	}()
	tb.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l
}

// refuse is a policy that refuses some flows and records all.
type refuse struct {
	refuse func(egress.Flow) bool
	mu     sync.Mutex
	seen   []egress.Flow // guarded by mu
}

func (r *refuse) Allow(_ context.Context, f egress.Flow) egress.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, f)
	return egress.Decision{Allow: !r.refuse(f), Reason: "the test says so"}
}

// The policy sees the address of the connection, and is called for open destinations only.
func TestPolicy(t *testing.T) {
	p := &refuse{refuse: func(f egress.Flow) bool { return f.Protocol == egress.UDP }}
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback, Policy: p})
	addr := echoServer(t)
	g.mustDial(addr)
	if _, err := g.dial("192.168.1.1:80"); err == nil {
		t.Error("a closed address was reached")
	}
	refusal(t, g.dialUDP(addr))
	port := netip.MustParseAddrPort(addr).Port()
	dest := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	want := []egress.Flow{
		{Sandbox: "box", Protocol: egress.TCP, Dest: dest},
		{Sandbox: "box", Protocol: egress.UDP, Dest: dest},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) != 2 || p.seen[0] != want[0] || p.seen[1] != want[1] {
		t.Errorf("policy saw %+v, want %+v", p.seen, want)
	}
	if d := gw.Usage().Denied; d != 2 {
		t.Errorf("denied = %d, want 2", d)
	}
}
