package egress_test

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/modbox/modbox/internal/egress"
)

// slowUpstream delays answers for slow.example until recover is called, and answers other questions
// at once.
type slowUpstream struct {
	addr netip.AddrPort
	conn net.PacketConn

	mu    sync.Mutex
	ready bool              // guarded by mu
	held  map[string][]byte // the delayed answers, by the port that asked; guarded by mu
}

func newSlowUpstream(tb testing.TB) *slowUpstream {
	tb.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	u := &slowUpstream{addr: netip.MustParseAddrPort(conn.LocalAddr().String()), conn: conn, held: map[string][]byte{}}
	serveDNS(tb, &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(u.answer)})
	return u
}

func (u *slowUpstream) answer(w dns.ResponseWriter, q *dns.Msg) {
	a := new(dns.Msg).SetReply(q)
	u.mu.Lock()
	defer u.mu.Unlock()
	if q.Question[0].Name != "slow.example." || u.ready {
		_ = w.WriteMsg(a)
		return
	}
	b, err := a.Pack()
	if err != nil {
		panic(err)
	}
	u.held[w.RemoteAddr().String()] = b
}

// waiting returns the number of questions without an answer.
func (u *slowUpstream) waiting() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.held)
}

// recover answers all questions, and later questions at once.
func (u *slowUpstream) recover() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready = true
	for to, b := range u.held {
		_, _ = u.conn.WriteTo(b, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	}
}

// flood asks for a slow name on that many connections, and by as many datagrams.
func (g *guest) flood(questions int) (conns []*dns.Conn) {
	g.tb.Helper()
	q := new(dns.Msg).SetQuestion("slow.example.", dns.TypeA)
	datagrams := &dns.Conn{Conn: g.dialUDP("10.0.0.1:53")}
	for range questions {
		c := &dns.Conn{Conn: g.mustDial("10.0.0.1:53")}
		for _, c := range []*dns.Conn{c, datagrams} {
			if err := c.WriteMsg(q); err != nil {
				g.tb.Fatal(err)
			}
		}
		conns = append(conns, c)
	}
	return conns
}

// answered checks that a question for another name is answered. By TCP the question waits for its
// turn; by UDP it may be dropped while the sandbox has too many others.
func (g *guest) answered(network, who string) {
	g.tb.Helper()
	a, err := g.ask(network, new(dns.Msg).SetQuestion("host.example.", dns.TypeA))
	if err != nil || a.Rcode != dns.RcodeSuccess {
		g.tb.Errorf("%s asks: %v, %v", who, a, err)
	}
}

// A sandbox has a limited number of concurrent questions, by datagrams and connections together;
// questions beyond that are dropped or wait, and succeed afterwards.
func TestDNSFloodOfOne(t *testing.T) {
	u := newSlowUpstream(t)
	n := testNetwork(t, egress.Config{Resolvers: []netip.AddrPort{u.addr}})
	_, greedy := attach(t, n)
	_, other := attach(t, n)
	conns := greedy.flood(2 * egress.MaxAsking)
	eventually(t, "as many questions as one may ask", func() bool { return u.waiting() >= egress.MaxAsking })
	other.answered("udp", "another sandbox")
	if got := u.waiting(); got != egress.MaxAsking {
		t.Errorf("%d questions of one sandbox are under way, want at most %d", got, egress.MaxAsking)
	}
	u.recover()
	for i, c := range conns {
		if a, err := c.ReadMsg(); err != nil || a.Rcode != dns.RcodeSuccess {
			t.Fatalf("question %d: %v, %v", i, a, err)
		}
	}
	greedy.answered("tcp", "the sandbox itself, afterwards,")
}

// When sandboxes have taken all shared places, the others still have their own.
func TestDNSFloodLeavesOthersTheirPart(t *testing.T) {
	const shared = 40
	u := newSlowUpstream(t)
	n := testNetwork(t, egress.Config{Resolvers: []netip.AddrPort{u.addr}})
	n.SharedQuestions(shared)
	_, other := attach(t, n)
	var greedy []*guest
	for range 2 {
		_, g := attach(t, n)
		g.flood(egress.MaxAsking)
		greedy = append(greedy, g)
	}
	const most = shared + 2*egress.OwnAsking
	eventually(t, "as many questions as all may ask", func() bool { return u.waiting() >= most })
	other.answered("udp", "another sandbox")
	if got := u.waiting(); got != most {
		t.Errorf("%d questions are under way, want at most %d", got, most)
	}
	u.recover()
	for _, g := range greedy {
		g.answered("tcp", "a greedy sandbox, afterwards,")
	}
}
