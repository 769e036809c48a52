package acme_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// The zone of the tests, and the key for its updates.
const (
	zone      = "modbox.test."
	keyName   = "modbox."
	keySecret = "c2VjcmV0IG9mIHRoZSB0ZXN0cyBvZiBtb2Rib3gh"
)

// nameServer is the DNS server of a zone: all its names are 127.0.0.1, and updates with the key add
// and remove TXT records.
type nameServer struct {
	t       *testing.T
	Address string

	mu      sync.Mutex
	records map[string][]string // guarded by mu
	added   int                 // guarded by mu
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{t: t, records: map[string][]string{}}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Address = tcp.Addr().String()
	udp, err := net.ListenPacket("udp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*dns.Server{{Listener: tcp}, {PacketConn: udp}} { // Pebble asks over TCP
		server.Handler, server.TsigSecret = dns.HandlerFunc(s.answer), map[string]string{keyName: keySecret}
		server.MsgAcceptFunc = func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }
		started, ended := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := server.Shutdown(); err != nil {
				t.Errorf("end the DNS server: %v", err)
			}
			<-ended
		})
	}
	return s
}

// Texts returns how many TXT records there are, and how many were added since the start.
func (s *nameServer) Texts() (now, added int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, values := range s.records {
		now += len(values)
	}
	return now, s.added
}

func (s *nameServer) answer(w dns.ResponseWriter, r *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(r)
	m.Authoritative = true
	if r.Opcode == dns.OpcodeUpdate {
		if r.IsTsig() == nil || w.TsigStatus() != nil {
			m.Rcode = dns.RcodeRefused
		} else {
			s.update(r)
			m.SetTsig(keyName, dns.HmacSHA256, 300, int64(r.IsTsig().TimeSigned))
		}
		_ = w.WriteMsg(m) // the client tries again
		return
	}
	q := r.Question[0]
	name := strings.ToLower(q.Name)
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 1}
	switch {
	case !dns.IsSubDomain(zone, name):
		m.Rcode = dns.RcodeRefused
	case q.Qtype == dns.TypeA:
		m.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
	case q.Qtype == dns.TypeTXT:
		for _, value := range s.records[name] {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: header, Txt: []string{value}})
		}
	}
	_ = w.WriteMsg(m) // the client tries again
}

// update applies an update; the caller holds mu.
func (s *nameServer) update(r *dns.Msg) {
	for _, rr := range r.Ns {
		text, ok := rr.(*dns.TXT)
		if !ok {
			s.t.Errorf("an update of another record than TXT: %v", rr)
			continue
		}
		name, value := strings.ToLower(text.Hdr.Name), strings.Join(text.Txt, "")
		if text.Hdr.Class == dns.ClassINET {
			s.records[name] = append(s.records[name], value)
			s.added++
			continue
		}
		s.records[name] = slices.DeleteFunc(s.records[name], func(v string) bool { return v == value })
	}
}
