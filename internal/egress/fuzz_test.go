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
	visited, in := attachInwardRaw(f, egress.Config{})
	outside := netip.MustParseAddr("8.8.8.8")
	f.Add(r.frame(header.TCPProtocolNumber, outside, segment(1, 2, header.TCPFlagSyn)))
	f.Add(r.frame(header.TCPProtocolNumber, outside, segment(1, 2, header.TCPFlagRst|header.TCPFlagAck)))
	f.Add(r.frame(header.UDPProtocolNumber, r.nic.Gateway, []byte("\x11\x11\x00\x35\x00\x19\x00\x00\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")))
	f.Add(r.frame(header.ICMPv4ProtocolNumber, outside, echoRequest(1, []byte("data"))))
	f.Add(r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, []byte{3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 28}))
	f.Add(r.frame(header.TCPProtocolNumber, r.nic.Gateway, segment(1, 2, header.TCPFlagSyn)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) == 0 || len(frame) > 60_000 {
			return
		}
		r.tb, in.tb = t, t
		r.send(frame)
		in.send(frame)
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
		in.send(made)
		for _, b := range [][]byte{frame, made} {
			if !egress.AcceptFrame(b) {
				if egress.AcceptInward(b) {
					t.Errorf("accepted without a network only: %x", b)
				}
				continue
			}
			if h := header.IPv4(b[header.EthernetMinimumSize:]); egress.AcceptInward(b) && header.Ethernet(b).Type() == header.IPv4ProtocolNumber &&
				(h.TransportProtocol() != header.TCPProtocolNumber || h.More() || h.FragmentOffset() != 0 || h.DestinationAddress() != tcpip.AddrFrom4(in.nic.Gateway.As4())) {
				t.Errorf("accepted without a network: %x", b)
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
		in.resolves()
		if u := visited.Usage(); u.Flows != 0 {
			t.Errorf("flows without a network = %d", u.Flows)
		}
		if u := gw.Usage(); u.Flows > 512 {
			t.Errorf("flows = %d", u.Flows)
		}
	})
}
