package egress

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// acceptFrame decides whether the stack receives a frame, and as which protocol: it must be complete,
// from the sandbox's own addresses, and of a supported kind. It is the first check of what a
// sandbox sends, and keeps everything unusual from the stack.
func acceptFrame(frame []byte) (tcpip.NetworkProtocolNumber, bool) {
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
		return ipv4.ProtocolNumber, dst == tcpip.LinkAddress(gatewayMAC) && acceptIPv4(payload)
	case arp.ProtocolNumber:
		toUs := dst == tcpip.LinkAddress(gatewayMAC) || dst == header.EthernetBroadcastAddress
		return arp.ProtocolNumber, toUs && acceptARP(payload)
	}
	return 0, false
}

// acceptIPv4 accepts TCP, UDP and ICMP from the sandbox's address to a host. It refuses options,
// and fragments of ICMP; the stack reassembles other fragments, and stores at most 4 MiB of them.
func acceptIPv4(b []byte) bool {
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

// acceptARP accepts the request for the gateway's hardware address.
func acceptARP(b []byte) bool {
	h := header.ARP(b)
	return len(b) >= header.ARPSize && h.IsValid() && h.Op() == header.ARPRequest &&
		tcpip.LinkAddress(h.HardwareAddressSender()) == tcpip.LinkAddress(guestMAC) &&
		tcpip.AddrFromSlice(h.ProtocolAddressSender()) == tcpip.AddrFrom4(GuestPrefix.Addr().As4()) &&
		tcpip.AddrFromSlice(h.ProtocolAddressTarget()) == tcpip.AddrFrom4(GatewayAddr.As4())
}
