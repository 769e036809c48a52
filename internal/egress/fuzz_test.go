package egress_test

import (
	"context"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/modbox/modbox/internal/egress"
)

// nothing is a policy that allows nothing.
type nothing struct{}

func (nothing) Allow(context.Context, egress.Flow) egress.Decision { return egress.Decision{} }

// FuzzFrame sends a frame unchanged, and once more with valid headers, so that its payload reaches
// the stack. The gateway must survive, and accept only the sandbox's own packets.
func FuzzFrame(f *testing.F) {
	gw, r := attachRaw(f, egress.Config{Policy: nothing{}, Resolvers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}})
	outside := netip.MustParseAddr("8.8.8.8")
	f.Add(r.frame(header.TCPProtocolNumber, outside, segment(1, 2, header.TCPFlagSyn)))
	f.Add(r.frame(header.TCPProtocolNumber, outside, segment(1, 2, header.TCPFlagRst|header.TCPFlagAck)))
	f.Add(r.frame(header.UDPProtocolNumber, r.nic.Gateway, []byte("\x11\x11\x00\x35\x00\x19\x00\x00\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")))
	f.Add(r.frame(header.ICMPv4ProtocolNumber, outside, echoRequest(1, []byte("data"))))
	f.Add(r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, []byte{3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 28}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) == 0 || len(frame) > 60_000 {
			return
		}
		r.tb = t
		r.send(frame)
		made := make([]byte, max(len(frame), header.EthernetMinimumSize+header.IPv4MinimumSize))
		copy(made, frame)
		header.Ethernet(made).Encode(&header.EthernetFields{
			SrcAddr: tcpip.LinkAddress(r.nic.MAC), DstAddr: tcpip.LinkAddress(r.nic.GatewayMAC), Type: header.IPv4ProtocolNumber,
		})
		h := header.IPv4(made[header.EthernetMinimumSize:])
		h[0] = 0x45
		h.SetTotalLength(uint16(len(h)))
		h.SetSourceAddress(tcpip.AddrFrom4(r.nic.Address.Addr().As4()))
		r.send(made)
		for _, b := range [][]byte{frame, made} {
			if !egress.AcceptFrame(b) {
				continue
			}
			if eth := header.Ethernet(b); eth.SourceAddress() != tcpip.LinkAddress(r.nic.MAC) {
				t.Errorf("accepted from another station: %x", b)
			} else if eth.Type() == header.IPv4ProtocolNumber {
				if src := header.IPv4(b[header.EthernetMinimumSize:]).SourceAddress(); src != tcpip.AddrFrom4(r.nic.Address.Addr().As4()) {
					t.Errorf("accepted from %s: %x", src, b)
				}
			}
		}
		r.alive()
		if u := gw.Usage(); u.Flows > 512 {
			t.Errorf("flows = %d", u.Flows)
		}
	})
}
