package egress

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// admit says whether the stack gets to see a frame, and as what: whole, from the
// sandbox's own addresses, and of a kind that is served. It is the first to look
// at what a sandbox sends, and keeps all that is unusual from the stack.
func admit(frame []byte) (tcpip.NetworkProtocolNumber, bool) {
	if len(frame) <= header.EthernetMinimumSize || len(frame) > maxFrame {
		return 0, false
	}
	eth := header.Ethernet(frame)
	if eth.SourceAddress() != tcpip.LinkAddress(guestMAC) {
		return 0, false
	}
	payload := frame[header.EthernetMinimumSize:]
	switch dst := eth.DestinationAddress(); eth.Type() {
	case ipv4.ProtocolNumber:
		return ipv4.ProtocolNumber, dst == tcpip.LinkAddress(gatewayMAC) && admitIPv4(payload)
	case arp.ProtocolNumber:
		toUs := dst == tcpip.LinkAddress(gatewayMAC) || dst == header.EthernetBroadcastAddress
		return arp.ProtocolNumber, toUs && admitARP(payload)
	}
	return 0, false
}

// admitIPv4 admits TCP, UDP and ICMP from the sandbox's address to one host.
// Options are refused, and fragments of ICMP; fragments of the others are put
// together by the stack, which keeps at most 4 MiB of them.
func admitIPv4(b []byte) bool {
	h := header.IPv4(b)
	if len(b) < header.IPv4MinimumSize || !h.IsValid(len(b)) || h.HeaderLength() != header.IPv4MinimumSize {
		return false
	}
	dst := h.DestinationAddress()
	if h.SourceAddress() != tcpip.AddrFrom4(GuestPrefix.Addr().As4()) ||
		dst == h.SourceAddress() || dst == header.IPv4Broadcast || header.IsV4MulticastAddress(dst) {
		return false
	}
	switch h.TransportProtocol() {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	case header.ICMPv4ProtocolNumber:
		payload := h.Payload()
		if h.More() || h.FragmentOffset() != 0 || len(payload) < header.ICMPv4MinimumSize {
			return false
		}
		t := header.ICMPv4(payload).Type()
		return t == header.ICMPv4Echo || t == header.ICMPv4DstUnreachable
	}
	return false
}

// admitARP admits the question for the gateway's hardware address.
func admitARP(b []byte) bool {
	h := header.ARP(b)
	return len(b) >= header.ARPSize && h.IsValid() && h.Op() == header.ARPRequest &&
		tcpip.LinkAddress(h.HardwareAddressSender()) == tcpip.LinkAddress(guestMAC) &&
		tcpip.AddrFromSlice(h.ProtocolAddressSender()) == tcpip.AddrFrom4(GuestPrefix.Addr().As4()) &&
		tcpip.AddrFromSlice(h.ProtocolAddressTarget()) == tcpip.AddrFrom4(GatewayAddr.As4())
}
