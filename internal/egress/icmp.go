package egress

import (
	"context"
	"net"
	"net/netip"
	"time"

	xicmp "golang.org/x/net/icmp"
	xipv4 "golang.org/x/net/ipv4"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// pingTimeout is how long an echo request waits for its reply.
const pingTimeout = 5 * time.Second

// acceptICMP handles echo requests, which the stack would otherwise answer itself for all
// addresses. It returns false to leave the answer to the stack: for the gateway's own address. It
// runs in the goroutine that reads frames, so nothing in it may wait.
func (g *Gateway) acceptICMP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.ICMPv4(pkt.TransportHeader().Slice())
	if len(h) < header.ICMPv4MinimumSize || h.Type() != header.ICMPv4Echo {
		return true
	}
	dest := netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), 0)
	if dest.Addr() == GatewayAddr {
		return false
	}
	e := echo{
		gateway: g, dest: dest, id: id,
		ident: h.Ident(), seq: h.Sequence(), data: pkt.Data().AsRange().ToSlice(),
	}
	flow := Flow{Protocol: ICMP, Dest: dest}
	if err := g.permit(g.ctx, flow); err != nil {
		g.refused(flow, err)
		e.prohibited()
		return true
	}
	select {
	case g.pinging <- struct{}{}:
	default:
		return true // too many: dropped, as on any network
	}
	run := func() {
		defer func() { <-g.pinging }()
		e.run()
	}
	if !g.spawn("icmp", run) {
		<-g.pinging
	}
	return true
}

// echo is an echo request.
type echo struct {
	gateway    *Gateway
	dest       netip.AddrPort
	id         stack.TransportEndpointID
	ident, seq uint16
	data       []byte
}

// run sends the request from the host, through a socket that needs no privilege, and passes the
// reply on. If the host does not permit such sockets (net.ipv4.ping_group_range), the answer is
// that the request is prohibited.
func (e *echo) run() {
	conn, err := xicmp.ListenPacket("udp4", "0.0.0.0")
	if err != nil {
		e.prohibited()
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(e.gateway.ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(e.gateway.network.pingTimeout))
	request := xicmp.Message{Type: xipv4.ICMPTypeEcho, Body: &xicmp.Echo{Seq: int(e.seq), Data: e.data}}
	b, err := request.Marshal(nil)
	if err != nil {
		return
	}
	if _, err := conn.WriteTo(b, &net.UDPAddr{IP: e.dest.Addr().AsSlice()}); err != nil {
		return
	}
	buf := make([]byte, len(b)+1)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if peer, ok := from.(*net.UDPAddr); !ok || peer.AddrPort().Addr().Unmap() != e.dest.Addr() {
			continue
		}
		reply, err := xicmp.ParseMessage(1, buf[:n])
		if err != nil || reply.Type != xipv4.ICMPTypeEchoReply {
			continue
		}
		if body, ok := reply.Body.(*xicmp.Echo); ok && body.Seq == int(e.seq) {
			e.reply(body.Data)
			return
		}
	}
}

// reply answers the sandbox from the address of the destination.
func (e *echo) reply(data []byte) {
	b := make([]byte, header.ICMPv4MinimumSize+len(data))
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4EchoReply)
	h.SetIdent(e.ident)
	h.SetSequence(e.seq)
	copy(h.Payload(), data)
	e.gateway.sendICMP(e.id.LocalAddress, h)
}

// prohibited answers that a filter refused the request.
func (e *echo) prohibited() {
	request := header.ICMPv4(make([]byte, header.ICMPv4MinimumSize))
	request.SetType(header.ICMPv4Echo)
	request.SetIdent(e.ident)
	request.SetSequence(e.seq)
	e.gateway.sendError(header.ICMPv4AdminProhibited, tcpip.AddrFrom4(GatewayAddr.As4()), header.ICMPv4ProtocolNumber, e.id, request)
}

// unreachable tells the sandbox, from the address of the destination, that the destination refused
// a UDP flow.
func (g *Gateway) unreachable(code header.ICMPv4Code, id stack.TransportEndpointID) {
	datagram := header.UDP(make([]byte, header.UDPMinimumSize))
	datagram.Encode(&header.UDPFields{SrcPort: id.RemotePort, DstPort: id.LocalPort, Length: header.UDPMinimumSize})
	g.sendError(code, id.LocalAddress, header.UDPProtocolNumber, id, datagram)
}

// sendError sends an ICMP error about a packet of the sandbox, with the first eight bytes after its
// IP header.
func (g *Gateway) sendError(code header.ICMPv4Code, from tcpip.Address, proto tcpip.TransportProtocolNumber, id stack.TransportEndpointID, about []byte) {
	b := make([]byte, header.ICMPv4MinimumSize+header.IPv4MinimumSize+len(about))
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4DstUnreachable)
	h.SetCode(code)
	original := h.Payload()
	encodeIPv4(original, proto, id.RemoteAddress, id.LocalAddress)
	copy(original[header.IPv4MinimumSize:], about)
	g.sendICMP(from, h)
}

// sendICMP sends a message to the sandbox.
func (g *Gateway) sendICMP(from tcpip.Address, message header.ICMPv4) {
	message.SetChecksum(0)
	message.SetChecksum(^checksum.Checksum(message, 0))
	b := make([]byte, header.IPv4MinimumSize+len(message))
	encodeIPv4(b, header.ICMPv4ProtocolNumber, from, tcpip.AddrFrom4(GuestPrefix.Addr().As4()))
	copy(b[header.IPv4MinimumSize:], message)
	// An error means a full queue or a closed gateway; ICMP messages may be lost.
	_ = g.stack.WritePacketToRemote(nicID, tcpip.LinkAddress(guestMAC), ipv4.ProtocolNumber, buffer.MakeWithData(b))
}

// encodeIPv4 writes the IP header of the packet b.
func encodeIPv4(b []byte, proto tcpip.TransportProtocolNumber, from, to tcpip.Address) {
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(proto), SrcAddr: from, DstAddr: to,
	})
	h.SetChecksum(^h.CalculateChecksum())
}
