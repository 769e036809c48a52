package egress_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/modbox/modbox/internal/egress"
	"github.com/modbox/modbox/internal/netrule"
)

func rules(tb testing.TB, allow, deny []string) *netrule.Rules {
	tb.Helper()
	r, err := netrule.Parse(netrule.List{Field: "allow", Entries: allow}, netrule.List{Field: "deny", Entries: deny})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// only returns rules that deny everything but some destinations.
func only(tb testing.TB, allow ...string) *netrule.Rules {
	tb.Helper()
	return rules(tb, allow, []string{netrule.Everything})
}

// restricted returns a gateway whose closed ranges leave the tests' servers open, and its guest.
func restricted(tb testing.TB) (*egress.Gateway, *guest) {
	tb.Helper()
	return attachWith(tb, egress.Config{
		Resolvers: []netip.AddrPort{upstream(tb)}, AllowCIDRs: append(slices.Clone(loopback), netip.MustParsePrefix("203.0.113.0/24")),
	})
}

// resolve asks the gateway for the addresses of a name.
func (g *guest) resolve(name string) (rcode int, addresses []string) {
	g.tb.Helper()
	a, err := g.ask("udp", new(dns.Msg).SetQuestion(name, dns.TypeA))
	if err != nil {
		g.tb.Fatalf("resolve %s: %v", name, err)
	}
	for _, rr := range a.Answer {
		if a, ok := rr.(*dns.A); ok {
			addresses = append(addresses, a.A.String())
		}
	}
	return a.Rcode, addresses
}

// exchange sends a line to an echo server and reports whether it comes back.
func exchange(c net.Conn, line string) error {
	if _, err := io.WriteString(c, line); err != nil {
		return err
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != line {
		return fmt.Errorf("%q came back", got)
	}
	return nil
}

func TestRulesOfAddresses(t *testing.T) {
	gw, g := restricted(t)
	server, datagrams := echoServer(t), echoUDP(t)
	for _, tt := range []struct {
		rules *netrule.Rules
		open  bool
	}{
		{nil, true},
		{only(t), false},
		{only(t, "203.0.113.0/25"), true},
		{only(t, "198.51.100.0/24", "allowed.example"), false},
		{rules(t, nil, []string{"203.0.113.1"}), false},
		{rules(t, nil, []string{"203.0.113.2"}), true},
		{rules(t, []string{"203.0.113.1"}, []string{"203.0.113.0/24"}), true},
	} {
		gw.Restrict(tt.rules)
		before := gw.Usage().Denied
		c, err := g.dial(server)
		if err == nil {
			err = exchange(c, "hello\n")
			_ = c.Close()
		}
		if (err == nil) != tt.open {
			t.Errorf("allow %v, deny %v: connection: %v, want open: %t", tt.rules.AllowOut(), tt.rules.DenyOut(), err, tt.open)
		}
		if d := gw.Usage().Denied - before; (d == 0) != tt.open {
			t.Errorf("allow %v, deny %v: %d flows denied, want open: %t", tt.rules.AllowOut(), tt.rules.DenyOut(), d, tt.open)
		}
		if u := g.dialUDP(datagrams); tt.open {
			if err := exchange(u, "hello"); err != nil {
				t.Errorf("allow %v, deny %v: datagram: %v", tt.rules.AllowOut(), tt.rules.DenyOut(), err)
			}
		} else {
			refusal(t, u)
		}
	}
}

// A name allows the addresses with which the gateway answered this sandbox, and no others.
func TestRulesOfNames(t *testing.T) {
	gw, g := restricted(t)
	server, datagrams := echoServer(t), echoUDP(t)
	gw.Restrict(only(t, "allowed.example", "*.allowed.example"))
	refused := func(when string) {
		t.Helper()
		if _, err := g.dial(server); err == nil {
			t.Errorf("%s: connected", when)
		}
	}
	refused("before the name was resolved")
	if rcode, _ := g.resolve("other.example."); rcode != dns.RcodeRefused {
		t.Errorf("a name that is not allowed: answer %s, want refused", dns.RcodeToString[rcode])
	}
	refused("after another name was resolved")

	if rcode, got := g.resolve("WWW.Allowed.example."); rcode != dns.RcodeSuccess || !slices.Equal(got, []string{"203.0.113.1"}) {
		t.Fatalf("the allowed name leads to %v, %s", got, dns.RcodeToString[rcode])
	}
	c := g.mustDial(server)
	if err := exchange(c, "hello\n"); err != nil {
		t.Errorf("after the name was resolved: %v", err)
	}
	refusal(t, g.dialUDP(datagrams)) // names do not allow UDP

	other, stranger := attach(t, gw.Network())
	other.Restrict(only(t, "allowed.example"))
	if _, err := stranger.dial(server); err == nil {
		t.Error("another sandbox with the same rules connected before it resolved the name")
	}

	gw.ExpireAnswers()
	refused("after the answer expired")
	if err := exchange(c, "still here\n"); err != nil {
		t.Errorf("the open connection after the answer expired: %v", err)
	}
}

// Addresses that are closed for all sandboxes stay closed, whatever the rules and the names say.
func TestRulesOpenNothing(t *testing.T) {
	gw, g := attachWith(t, egress.Config{Resolvers: []netip.AddrPort{upstream(t)}})
	for _, r := range []*netrule.Rules{only(t, "closed.example", "169.254.169.254", "10.0.0.0/8", "127.0.0.0/8"), rules(t, []string{netrule.Everything}, nil)} {
		gw.Restrict(r)
		if _, got := g.resolve("closed.example."); len(got) != 0 {
			t.Errorf("a name leads to the closed addresses %v", got)
		}
		for _, addr := range []string{"169.254.169.254:80", "10.0.0.1:80", "127.0.0.1:80"} {
			if _, err := g.dial(addr); err == nil {
				t.Errorf("connected to %s", addr)
			}
		}
	}
	gw, g = attachWith(t, egress.Config{Policy: nothing{}, AllowCIDRs: loopback})
	gw.Restrict(rules(t, []string{netrule.Everything}, nil))
	if _, err := g.dial(echoServer(t)); err == nil {
		t.Error("connected although the policy refuses it")
	}
}

// A change of the rules cuts the flows that it does not allow, and no others.
func TestRulesChanged(t *testing.T) {
	gw, g := restricted(t)
	server, datagrams := echoServer(t), echoUDP(t)
	cut := func(when string, c net.Conn) {
		t.Helper()
		eventually(t, when+": the end of the connection", func() bool { return exchange(c, "hello\n") != nil })
	}
	open := func(when string, c net.Conn) {
		t.Helper()
		if err := exchange(c, "hello\n"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	c, u := g.mustDial(server), g.dialUDP(datagrams)
	open("without rules", c)
	open("without rules", u)
	gw.Restrict(rules(t, nil, []string{"198.51.100.0/24"}))
	open("denied another range", c)
	gw.Restrict(only(t, "203.0.113.1"))
	open("allowed by its address", c)
	open("allowed by its address", u)
	gw.Restrict(only(t, "allowed.example", "stray.example"))
	cut("allowed by a name that it did not resolve", c)
	eventually(t, "end of the flows", func() bool { return gw.OpenFlows() == 0 })

	g.resolve("allowed.example.")
	c = g.mustDial(server)
	open("allowed by a name", c)
	gw.Restrict(only(t, "allowed.example", "*.example.org"))
	open("still allowed by a name", c)
	d := g.mustDial(server)
	open("still allowed by a name, a new one", d)
	gw.Restrict(only(t, "*.example.org"))
	cut("its name is not allowed any more", c)
	cut("its name is not allowed any more", d)
	if n := gw.Answers(); n != 0 {
		t.Errorf("the table still has %d answers of names that the new rules do not allow", n)
	}

	// The name that led to the server and the names that a connection asks it for must all stay allowed.
	request := func(names string) net.Conn {
		t.Helper()
		c := g.mustDial(server)
		if err := exchange(c, names); err != nil {
			t.Errorf("%q: %v", names, err)
		}
		return c
	}
	led := only(t, "allowed.example", "asked.example", "target.example")
	twoNames := "GET http://asked.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n"
	for _, tt := range []struct {
		begin string
		allow []string
		open  bool
	}{
		{string(hello(t, "asked.example")), []string{"allowed.example", "asked.example"}, true},
		{string(hello(t, "asked.example")), []string{"asked.example"}, false},
		{string(hello(t, "asked.example")), []string{"allowed.example"}, false},
		{twoNames, []string{"allowed.example", "asked.example", "target.example"}, true},
		{twoNames, []string{"allowed.example", "target.example"}, false},
		{twoNames, []string{"allowed.example", "asked.example"}, false},
	} {
		gw.Restrict(led)
		g.resolve("allowed.example.")
		c := request(tt.begin)
		gw.Restrict(only(t, tt.allow...))
		when := fmt.Sprintf("%.20q with only %v allowed", tt.begin, tt.allow)
		if tt.open {
			open(when, c)
		} else {
			cut(when, c)
		}
		_ = c.Close()
	}
	// A connection that began while its range was allowed ends with the range.
	gw.Restrict(led)
	g.resolve("allowed.example.")
	c = g.mustDial(server)
	gw.Restrict(only(t, "allowed.example", "203.0.113.1"))
	if err := exchange(c, string(hello(t, "evil.example"))); err != nil {
		t.Errorf("any name at an allowed address: %v", err)
	}
	gw.Restrict(led)
	cut("its range is not allowed any more", c)

	eventually(t, "end of the flows", func() bool { return gw.OpenFlows() == 0 })
	gw.Restrict(nil)
	open("without rules again", g.mustDial(server))
	eventually(t, "end of the flows", func() bool { return gw.OpenFlows() == 1 })
}

// The answer to a question from before a change of the rules is refused if they do not allow it any more.
func TestRulesChangedDuringQuestion(t *testing.T) {
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gw, g := attachWith(t, egress.Config{Resolvers: []netip.AddrPort{netip.MustParseAddrPort(p.LocalAddr().String())}, AllowCIDRs: loopback})
	gw.Restrict(rules(t, nil, []string{"198.51.100.0/24"}))
	serveDNS(t, &dns.Server{PacketConn: p, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		gw.Restrict(only(t, "other.example", "93.184.215.14"))
		a := new(dns.Msg).SetReply(q)
		a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(93, 184, 215, 14)}}
		_ = w.WriteMsg(a)
	})})
	if rcode, got := g.resolve("allowed.example."); rcode != dns.RcodeRefused || len(got) != 0 {
		t.Errorf("the answer has %v, %s, want refused", got, dns.RcodeToString[rcode])
	}
}

// The addresses that a hostile sandbox resolves take bounded memory, and an address that an answer has
// for another name is not allowed.
func TestAnswersBounded(t *testing.T) {
	gw, g := restricted(t)
	gw.Restrict(only(t, "*.many.example", "stray.example"))
	for i := range 20 {
		a, err := g.ask("tcp", new(dns.Msg).SetQuestion(fmt.Sprintf("%d.many.example.", i), dns.TypeA))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Answer) != egress.MaxAnswered {
			t.Fatalf("answer with %d addresses, want %d", len(a.Answer), egress.MaxAnswered)
		}
	}
	if n := gw.Answers(); n != egress.MaxAnswers {
		t.Errorf("%d answers, want %d", n, egress.MaxAnswers)
	}
	if _, err := g.dial(echoServer(t)); err == nil {
		t.Error("connected to an address that an answer had for another name")
	}
}
