package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

const (
	// maxQuestion is the largest question that is read, in bytes.
	maxQuestion = 4096
	// maxTTL bounds how long a sandbox may cache an answer.
	maxTTL = 5 * time.Minute
	// maxUDPAnswer bounds an answer by UDP, whatever size the sandbox accepts.
	maxUDPAnswer = 4096
	// dnsIdle is how long a connection to the gateway's DNS may be without questions.
	dnsIdle = 10 * time.Second
)

// dnsAddr is the address of the gateway's DNS server.
var dnsAddr = netip.AddrPortFrom(GatewayAddr, 53)

// serveDNS answers questions that arrive by UDP, until the gateway is closed.
func (g *Gateway) serveDNS() error {
	local := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(GatewayAddr.As4()), Port: dnsAddr.Port()}
	conn, err := gonet.DialUDP(g.stack, &local, nil, ipv4.ProtocolNumber)
	if err != nil {
		return err
	}
	context.AfterFunc(g.ctx, func() { _ = conn.Close() })
	g.spawn("dns", func() {
		buf := make([]byte, maxQuestion)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				if g.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
					return
				}
				continue // an ICMP error of the sandbox
			}
			g.answerDatagram(conn, from, slices.Clone(buf[:n]))
		}
	})
	return nil
}

// answerDatagram answers in a goroutine of its own. Questions beyond the limit are dropped; the
// sandbox repeats them.
func (g *Gateway) answerDatagram(conn net.PacketConn, to net.Addr, question []byte) {
	select {
	case g.asking <- struct{}{}:
	default:
		return
	}
	run := func() {
		defer func() { <-g.asking }()
		if answer := g.answer(question, true); answer != nil {
			_, _ = conn.WriteTo(answer, to) // lost when the queue is full; the sandbox repeats the question
		}
	}
	if !g.spawn("dns", run) {
		<-g.asking
	}
}

// serveDNSOver answers the questions of a connection, one after the other.
func (g *Gateway) serveDNSOver(guest *guestConn) {
	stop := context.AfterFunc(g.ctx, guest.abort)
	defer stop()
	conn := dns.Conn{Conn: guest}
	buf := make([]byte, maxQuestion)
	for g.ctx.Err() == nil {
		_ = guest.SetDeadline(time.Now().Add(g.network.dnsIdle))
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		answer := g.answerInTurn(buf[:n])
		if answer == nil {
			return
		}
		_ = guest.SetDeadline(time.Now().Add(g.network.dnsIdle))
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// answerInTurn is answer for a question on a connection: questions beyond the limit wait.
func (g *Gateway) answerInTurn(question []byte) []byte {
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
		return g.answer(question, false)
	case <-g.ctx.Done():
		return nil
	}
}

// answer returns the answer to a question, or nil for an invalid question.
func (g *Gateway) answer(question []byte, datagram bool) []byte {
	var q dns.Msg
	if err := q.Unpack(question); err != nil || q.Response {
		return nil
	}
	size := dns.MaxMsgSize
	if datagram {
		size = dns.MinMsgSize
	}
	a := g.resolve(&q)
	a.RecursionAvailable = true
	a.Compress = true
	if opt := q.IsEdns0(); opt != nil {
		if datagram {
			size = min(max(int(opt.UDPSize()), size), maxUDPAnswer)
		}
		a.SetEdns0(maxUDPAnswer, false)
	}
	a.Truncate(size)
	b, err := a.Pack()
	if err != nil {
		b, _ = new(dns.Msg).SetRcode(&q, dns.RcodeServerFailure).Pack()
	}
	return b
}

// resolve answers q with the host's resolvers.
func (g *Gateway) resolve(q *dns.Msg) *dns.Msg {
	if q.Opcode != dns.OpcodeQuery {
		return new(dns.Msg).SetRcode(q, dns.RcodeNotImplemented)
	}
	if len(q.Question) != 1 {
		return new(dns.Msg).SetRcode(q, dns.RcodeFormatError)
	}
	asked := q.Question[0]
	switch asked.Qtype {
	case dns.TypeANY, dns.TypeAXFR, dns.TypeIXFR, dns.TypeMAILA, dns.TypeMAILB:
		return new(dns.Msg).SetRcode(q, dns.RcodeNotImplemented)
	}
	flow := Flow{Protocol: DNS, Name: strings.ToLower(asked.Name)}
	if asked.Qclass != dns.ClassINET || !g.questions.Allow() {
		return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
	}
	if err := g.permit(g.ctx, flow); err != nil {
		g.refused(flow, err)
		return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
	}
	found, err := g.network.resolver.ask(g.ctx, g.own, asked)
	if err != nil {
		g.log.Debug("question not answered", "name", flow.Name, "error", err)
		return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
	}
	if err := g.restriction.check(flow); err != nil { // the rules may have changed
		g.refused(flow, err)
		return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
	}
	g.restriction.learn(flow.Name, found.Answer)
	a := new(dns.Msg).SetRcode(q, found.Rcode)
	a.Answer = g.open(flow, found.Answer)
	a.Ns = g.open(flow, found.Ns)
	a.Extra = g.open(flow, found.Extra)
	return a
}

// open returns the records that a sandbox may see: without addresses that are closed or that its
// rules deny, without IPv6, which it cannot use, and with a TTL of at most maxTTL.
func (g *Gateway) open(flow Flow, records []dns.RR) []dns.RR {
	kept := records[:0]
	for _, rr := range records {
		switch rr := rr.(type) {
		case *dns.A:
			addr, _ := netip.AddrFromSlice(rr.A.To4())
			if err := g.visible(addr); err != nil {
				g.refused(flow, err)
				continue
			}
		case *dns.AAAA, *dns.OPT, *dns.TSIG, *dns.SIG:
			continue
		case *dns.SVCB:
			g.withoutHints(rr)
		case *dns.HTTPS:
			g.withoutHints(&rr.SVCB)
		}
		h := rr.Header()
		h.Ttl = min(h.Ttl, uint32(maxTTL/time.Second))
		kept = append(kept, rr)
	}
	return kept
}

// visible returns an error for an address that a sandbox cannot reach.
func (g *Gateway) visible(addr netip.Addr) error {
	if err := g.network.closure.check(addr); errors.Is(err, errClosed) {
		return err
	}
	return g.restriction.check(Flow{Protocol: TCP, Dest: netip.AddrPortFrom(addr, 0)})
}

// withoutHints removes the addresses from a service record: clients also resolve them by name. If
// names are allowed, it also removes the keys with which clients hide the name of a host.
func (g *Gateway) withoutHints(rr *dns.SVCB) {
	unwanted := []dns.SVCBKey{dns.SVCB_IPV4HINT, dns.SVCB_IPV6HINT}
	if g.restriction.names() {
		unwanted = append(unwanted, dns.SVCB_ECHCONFIG)
	}
	rr.Value = slices.DeleteFunc(rr.Value, func(kv dns.SVCBKeyValue) bool { return slices.Contains(unwanted, kv.Key()) })
}
