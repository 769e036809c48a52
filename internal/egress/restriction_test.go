package egress_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		if err := exchange(c, "hello\n"); err == nil {
			t.Errorf("%s: the connection goes on", when)
		}
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
		t.Errorf("%d answers are kept of names that are not allowed any more", n)
	}
	gw.Restrict(nil)
	open("without rules again", g.mustDial(server))
	eventually(t, "end of the flows", func() bool { return gw.OpenFlows() == 1 })
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

// TestNamesAsked connects over TLS and HTTP to an address that an allowed name leads to.
func TestNamesAsked(t *testing.T) {
	gw, g := restricted(t)
	gw.Restrict(only(t, "allowed.example", "*.allowed.example"))
	server := echoServer(t)
	g.resolve("allowed.example.")
	for _, tt := range []struct {
		begin string
		open  bool
	}{
		{string(hello(t, "allowed.example")), true},
		{string(hello(t, "www.allowed.example")), true},
		{string(hello(t, "evil.example")), false},
		{string(hello(t, "")), false},
		{"GET / HTTP/1.1\r\nHost: allowed.example:8080\r\n\r\n", true},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", false},
		{"\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", false},
		{"GET http://evil.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n", false},
		{"SSH-2.0-test\r\n", true},
		{"\x00\x00\x00\x08", true},
	} {
		before := gw.Usage().Denied
		c := g.mustDial(server)
		for part := range slices.Chunk([]byte(tt.begin), 100) {
			if _, err := c.Write(part); err != nil {
				break
			}
		}
		n, err := io.ReadFull(c, make([]byte, len(tt.begin)))
		if (err == nil) != tt.open {
			t.Errorf("%.80q: %d bytes, %v, want open: %t", tt.begin, n, err, tt.open)
		}
		if d := gw.Usage().Denied - before; (d == 1) == tt.open {
			t.Errorf("%.80q: %d flows denied, want open: %t", tt.begin, d, tt.open)
		}
		_ = c.Close()
	}
	first := serve(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "220 ready\r\n") })
	if line, err := bufio.NewReader(g.mustDial(first)).ReadString('\n'); err != nil || line != "220 ready\r\n" {
		t.Errorf("a server that speaks first: %q, %v", line, err)
	}
	c := g.mustDial(server)
	for _, part := range []string{"hello", " you", "there\n"} { // waits for each
		if err := exchange(c, part); err != nil {
			t.Errorf("text in parts, %q: %v", part, err)
		}
	}
	c = g.mustDial(server)
	if err := exchange(c, "GET / HTTP/1.1\r"); err != nil {
		t.Errorf("the beginning of a line: %v", err)
	}
	if err := exchange(c, "\nHost: evil.example\r\n\r\n"); err == nil {
		t.Error("a request for a name that is not allowed passes in parts")
	}
	gw.Restrict(only(t, "203.0.113.1"))
	if err := exchange(g.mustDial(server), string(hello(t, "evil.example"))); err != nil {
		t.Errorf("TLS for any name to an allowed address: %v", err)
	}
}

// hello returns the first message of a TLS client that asks for a name.
func hello(tb testing.TB, name string) []byte {
	tb.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() // it only sends its hello
	}()
	header := make([]byte, 5)
	if _, err := io.ReadFull(ours, header); err != nil {
		tb.Fatal(err)
	}
	body := make([]byte, int(header[3])<<8|int(header[4]))
	if _, err := io.ReadFull(ours, body); err != nil {
		tb.Fatal(err)
	}
	return append(header, body...)
}

// inRecords splits the message of a record into records of n bytes.
func inRecords(record []byte, n int) []byte {
	var out []byte
	for part := range slices.Chunk(record[5:], n) {
		out = append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestAskedNames(t *testing.T) {
	h := hello(t, "www.example.com")
	const short, wrong = "short", "wrong"
	for _, tt := range []struct {
		begin string
		port  uint16
		want  []string
		err   string
	}{
		{string(h), 443, []string{"www.example.com"}, ""},
		{string(h), 8443, []string{"www.example.com"}, ""},
		{string(h) + "more", 443, []string{"www.example.com"}, ""},
		{string(inRecords(h, 7)), 443, []string{"www.example.com"}, ""},
		{string(h[:len(h)-1]), 443, nil, short},
		{string(inRecords(h, 7)[:300]), 443, nil, short},
		{"\x16", 443, nil, short},
		{"", 443, nil, short},
		{string(hello(t, "")), 443, nil, wrong},
		{string(hello(t, "")), 9999, nil, wrong},
		{"\x16\x03\x01\x00\x00", 443, nil, wrong},
		{"\x16\x03\x01\x00\x04\x02\x00\x00\x00", 443, nil, wrong},
		{"\x16\x02\x01", 443, nil, wrong},
		{"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", 443, nil, wrong},
		{"SSH-2.0-x\r\n", 443, nil, wrong},
		{"SSH-2.0-x\r\n", 80, nil, wrong},
		{"SSH-2.0-x\r\n", 22, nil, ""},
		{"SSH-2.0-x y\r\n", 22, nil, ""},
		{"EHLO a.example\r\n", 25, nil, ""},
		{"\x00\x01", 25, nil, ""},
		{"\x00\x01", 80, nil, wrong},
		{strings.Repeat("a", 65), 25, nil, ""},
		{strings.Repeat("a", 64), 25, nil, short},
		{"GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n", 80, []string{"a.example"}, ""},
		{"GET / HTTP/1.1\nhOsT:a.example\n\n", 8080, []string{"a.example"}, ""},
		{"GET\t/\tHTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"get / HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"\r\n\nGET / HTTP/1.0\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET /\xe9 HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 80, []string{"::1"}, ""},
		{"GET / HTTP/1.1\r\nHost: a.example\r\n", 80, nil, short},
		{"GET / HTTP/1.1\r\nHost: a.exam", 80, nil, short},
		{"GET / HTTP/1.1\r\n", 80, nil, short},
		{"GET / HTT", 8080, nil, short},
		{"GET ", 8080, nil, short},
		{"GET / HTTP/1.1\r\n\r\n", 80, nil, wrong},
		{"GET / HTTP/1.1\r\n\r\n", 8080, nil, wrong},
		{"GET /\r\n", 80, nil, wrong},
		{"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", 80, nil, wrong},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n", 80, nil, wrong},
		{"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, []string{"a.example", "b.example"}, ""},
		{"GET b.example HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, nil, wrong},
		{"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, []string{"a.example"}, ""},
		{"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example", "b.example"}, ""},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 80, nil, wrong},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 50051, nil, ""},
	} {
		got, err := egress.AskedNames([]byte(tt.begin), tt.port)
		kind := ""
		if errors.Is(err, egress.ErrShort) {
			kind = short
		} else if err != nil {
			kind = wrong
		}
		if kind != tt.err {
			t.Errorf("port %d, %.80q: error %v, want %q", tt.port, tt.begin, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
			t.Errorf("port %d, %.80q (-want +got):\n%s", tt.port, tt.begin, diff)
		}
	}
}

// FuzzAskedNames compares the names with the names that crypto/tls and net/http read.
func FuzzAskedNames(f *testing.F) {
	h := hello(f, "www.example.com")
	f.Add(h)
	f.Add(inRecords(h, 40))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Fuzz(func(t *testing.T, begin []byte) {
		for _, port := range []uint16{443, 80, 8080} {
			names, err := egress.AskedNames(begin, port)
			if err != nil {
				continue
			}
			if got, ok := serverNameOf(begin); ok && !slices.Contains(names, got) {
				t.Fatalf("port %d: names %q; a TLS server reads %q in %q", port, names, got, begin)
			}
			if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.TrimLeft(string(begin), "\r\n")))); err == nil && r.ProtoMajor == 1 && r.Host != "" {
				host := r.Host
				if name, _, err := net.SplitHostPort(host); err == nil {
					host = name
				}
				if !slices.Contains(names, host) {
					t.Fatalf("port %d: names %q; an HTTP server reads %q in %q", port, names, r.Host, begin)
				}
			}
		}
	})
}

// serverNameOf returns the name that crypto/tls reads in a hello.
func serverNameOf(begin []byte) (name string, ok bool) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_, _ = ours.Write(begin)
		_ = ours.Close()
	}()
	_ = tls.Server(theirs, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = info.ServerName, true
		return nil, errors.New("seen")
	}}).Handshake()
	return name, ok
}
