package egress_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/modbox/modbox/internal/egress"
)

// zone has the records of the test's upstream server.
var zone = []string{
	"www.example. 86400 IN CNAME host.example.",
	"host.example. 86400 IN A 93.184.215.14",
	"host.example. 86400 IN AAAA 2606:2800:21f:cb07:6820:80da:af6b:8b2c",
	"rebind.example. 60 IN A 127.0.0.1",
	"rebind.example. 60 IN A 169.254.169.254",
	"rebind.example. 60 IN A 93.184.215.14",
	"rebind.example. 60 IN A 10.0.0.1",
	"rebind6.example. 60 IN AAAA ::ffff:127.0.0.1",
	"rebind6.example. 60 IN AAAA 64:ff9b::a9fe:a9fe",
	"svc.example. 60 IN HTTPS 1 . alpn=h2 ipv4hint=127.0.0.1 ipv6hint=::1",
	"mail.example. 60 IN MX 10 host.example.",
	`text.example. 60 IN TXT "a b"`,
	"www.allowed.example. 60 IN CNAME allowed.example.",
	"allowed.example. 60 IN A 203.0.113.1",
	"other.example. 60 IN A 203.0.113.1",
	"closed.example. 60 IN A 169.254.169.254",
	"closed.example. 60 IN A 10.0.0.1",
	"stray.example. 60 IN CNAME nowhere.example.",
}

// upstream is a resolver of the host, on loopback, by UDP and TCP.
func upstream(tb testing.TB) netip.AddrPort {
	tb.Helper()
	mux := dns.NewServeMux()
	mux.HandleFunc("example.", func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		a.Answer = lookUp(tb, q.Question[0])
		if len(a.Answer) == 0 && !strings.HasSuffix(q.Question[0].Name, "ost.example.") {
			a.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(a)
	})
	mux.HandleFunc("big.example.", func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		for i := range 200 {
			a.Answer = append(a.Answer, &dns.TXT{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 1},
				Txt: []string{fmt.Sprint("record number ", i, strings.Repeat(".", 30))},
			})
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			a.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(a)
	})
	mux.HandleFunc("many.example.", func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		number := 0 // of the name, as 3.many.example
		_, _ = fmt.Sscanf(q.Question[0].Name, "%d.", &number)
		for i := range 100 {
			hdr := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
			a.Answer = append(a.Answer, &dns.A{Hdr: hdr, A: net.IPv4(93, 184, byte(number), byte(i))})
		}
		a.Answer = append(a.Answer, &dns.A{Hdr: dns.RR_Header{Name: "stranger.example.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(203, 0, 113, 1)})
		_ = w.WriteMsg(a)
	})
	mux.HandleFunc("broken.example.", func(w dns.ResponseWriter, q *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p, err := net.ListenPacket("udp4", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range []*dns.Server{{Listener: l, Handler: mux}, {PacketConn: p, Handler: mux}} {
		serveDNS(tb, s)
	}
	return netip.MustParseAddrPort(l.Addr().String())
}

// serveDNS runs a server until the end of the test.
func serveDNS(tb testing.TB, s *dns.Server) {
	tb.Helper()
	started, done := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	go func() { done <- s.ActivateAndServe() }()
	<-started
	tb.Cleanup(func() {
		_ = s.Shutdown()
		<-done
	})
}

// lookUp finds the records for a question in zone, following aliases.
func lookUp(tb testing.TB, q dns.Question) []dns.RR {
	var found []dns.RR
	name := dns.CanonicalName(q.Name)
	for _, line := range zone {
		rr, err := dns.NewRR(line)
		if err != nil {
			tb.Errorf("%s: %v", line, err)
			continue
		}
		if rr.Header().Name != name {
			continue
		}
		if c, ok := rr.(*dns.CNAME); ok {
			name = c.Target
			found = append(found, rr)
		}
		if rr.Header().Rrtype == q.Qtype {
			found = append(found, rr)
		}
	}
	return found
}

// ask sends a question to the gateway, by "udp" or "tcp".
func (g *guest) ask(network string, q *dns.Msg) (*dns.Msg, error) {
	const server = "10.0.0.1:53"
	var conn net.Conn
	if network == "udp" {
		conn = g.dialUDP(server)
	} else {
		conn = g.mustDial(server)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	a, _, err := (&dns.Client{Timeout: timeout}).ExchangeWithConn(q, &dns.Conn{Conn: conn, UDPSize: 4096})
	return a, err
}

// strs returns records as text with single spaces.
func strs(records []dns.RR) []string {
	var out []string
	for _, rr := range records {
		out = append(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	return out
}

func TestDNS(t *testing.T) {
	_, g := attachWith(t, egress.Config{Resolvers: []netip.AddrPort{upstream(t)}})
	tests := []struct {
		name  string
		qtype uint16
		rcode int
		want  []string
	}{
		{"host.example.", dns.TypeA, dns.RcodeSuccess, []string{"host.example. 300 IN A 93.184.215.14"}},
		{"HoSt.ExAmPlE.", dns.TypeA, dns.RcodeSuccess, []string{"host.example. 300 IN A 93.184.215.14"}},
		{"www.example.", dns.TypeA, dns.RcodeSuccess, []string{"www.example. 300 IN CNAME host.example.", "host.example. 300 IN A 93.184.215.14"}},
		{"host.example.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"rebind.example.", dns.TypeA, dns.RcodeSuccess, []string{"rebind.example. 60 IN A 93.184.215.14"}},
		{"rebind6.example.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"svc.example.", dns.TypeHTTPS, dns.RcodeSuccess, []string{`svc.example. 60 IN HTTPS 1 . alpn="h2"`}},
		{"mail.example.", dns.TypeMX, dns.RcodeSuccess, []string{"mail.example. 60 IN MX 10 host.example."}},
		{"text.example.", dns.TypeTXT, dns.RcodeSuccess, []string{`text.example. 60 IN TXT "a b"`}},
		{"nothing.example.", dns.TypeA, dns.RcodeNameError, nil},
		{"broken.example.", dns.TypeA, dns.RcodeServerFailure, nil},
		{"host.example.", dns.TypeANY, dns.RcodeNotImplemented, nil},
		{"example.", dns.TypeAXFR, dns.RcodeNotImplemented, nil},
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, tt := range tests {
			t.Run(network+"/"+tt.name+dns.TypeToString[tt.qtype], func(t *testing.T) {
				a, err := g.ask(network, new(dns.Msg).SetQuestion(tt.name, tt.qtype))
				if err != nil {
					t.Fatal(err)
				}
				if a.Rcode != tt.rcode || !a.RecursionAvailable {
					t.Errorf("answer is %s, recursion available %t; want %s", dns.RcodeToString[a.Rcode], a.RecursionAvailable, dns.RcodeToString[tt.rcode])
				}
				if a.Question[0].Name != tt.name {
					t.Errorf("question came back as %s", a.Question[0].Name)
				}
				if diff := cmp.Diff(tt.want, strs(a.Answer)); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Answers too long for a datagram are truncated, and complete by TCP.
func TestDNSSizes(t *testing.T) {
	_, g := attachWith(t, egress.Config{Resolvers: []netip.AddrPort{upstream(t)}})
	for _, tt := range []struct {
		network   string
		edns      uint16
		max       int
		truncated bool
	}{
		{"udp", 0, 512, true},
		{"udp", 1232, 1232, true},
		{"udp", 65535, 4096, true},
		{"tcp", 0, dns.MaxMsgSize, false},
	} {
		t.Run(fmt.Sprint(tt.network, tt.edns), func(t *testing.T) {
			q := new(dns.Msg).SetQuestion("big.example.", dns.TypeTXT)
			if tt.edns > 0 {
				q.SetEdns0(tt.edns, false)
			}
			a, err := g.ask(tt.network, q)
			if err != nil {
				t.Fatal(err)
			}
			a.Compress = true
			if a.Len() > tt.max || a.Truncated != tt.truncated || (len(a.Answer) == 200) == tt.truncated {
				t.Errorf("%d bytes, %d records, truncated %t", a.Len(), len(a.Answer), a.Truncated)
			}
		})
	}
}

// The policy can refuse names, and answers include addresses of a private range that is opened.
func TestDNSPolicy(t *testing.T) {
	p := &refuse{refuse: func(f egress.Flow) bool { return f.Name == "host.example." }}
	gw, g := attachWith(t, egress.Config{
		Resolvers: []netip.AddrPort{upstream(t)}, Policy: p,
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32")},
	})
	a, err := g.ask("udp", new(dns.Msg).SetQuestion("HOST.example.", dns.TypeA))
	if err != nil || a.Rcode != dns.RcodeRefused || len(a.Answer) != 0 {
		t.Errorf("refused name: %v, %v", a, err)
	}
	a, err = g.ask("udp", new(dns.Msg).SetQuestion("rebind.example.", dns.TypeA))
	want := []string{"rebind.example. 60 IN A 169.254.169.254", "rebind.example. 60 IN A 93.184.215.14"}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, strs(a.Answer)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if d := gw.Usage().Denied; d != 3 {
		t.Errorf("denied = %d, want 3: a name and two addresses", d)
	}
}

// A resolver that does not answer causes an error after a short time, and another resolver is
// asked.
func TestDNSServerDown(t *testing.T) {
	l, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := netip.MustParseAddrPort(l.LocalAddr().String())
	_ = l.Close()
	_, g := attachWith(t, egress.Config{Resolvers: []netip.AddrPort{down}})
	a, err := g.ask("udp", new(dns.Msg).SetQuestion("host.example.", dns.TypeA))
	if err != nil || a.Rcode != dns.RcodeServerFailure {
		t.Errorf("answer = %v, %v, want a server failure", a, err)
	}
	_, g = attachWith(t, egress.Config{Resolvers: []netip.AddrPort{down, upstream(t)}})
	a, err = g.ask("udp", new(dns.Msg).SetQuestion("host.example.", dns.TypeA))
	if err != nil || len(a.Answer) != 1 {
		t.Errorf("answer = %v, %v, want that of the second server", a, err)
	}
}

// Questions are limited to a rate; those above it are refused before anything else, and not queued.
func TestDNSRate(t *testing.T) {
	const questions = 3_000
	gw, g := attachWith(t, egress.Config{Policy: nothing{}, Resolvers: []netip.AddrPort{upstream(t)}})
	conn := &dns.Conn{Conn: g.mustDial("10.0.0.1:53")}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for range questions {
			if err := conn.WriteMsg(new(dns.Msg).SetQuestion("host.example.", dns.TypeA)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range questions {
		if a, err := conn.ReadMsg(); err != nil || a.Rcode != dns.RcodeRefused {
			t.Fatalf("answer = %v, %v, want refused", a, err)
		}
	}
	if d := gw.Usage().Denied; d < 400 || d == questions {
		t.Errorf("the policy was asked %d times for %d questions, want at least the burst and not each", d, questions)
	}
}
