package egress_test

import (
	"crypto/rand"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/modbox/modbox/internal/egress"
)

// escapes has a guest, whose default route is the gateway, dial and ask in all directions. It returns how
// many connections and datagrams leave the gateway.
func escapes(t *testing.T, attach func(*egress.Network) (*egress.Gateway, egress.NIC, error)) (conns, datagrams int) {
	t.Helper()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	resolver := netip.MustParseAddrPort(udp.LocalAddr().String())
	n := testNetwork(t, egress.Config{AllowCIDRs: loopback, Resolvers: []netip.AddrPort{resolver}})
	g, nic, err := attach(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	guest := newGuest(t, nic)
	guest.listen(80, func(c net.Conn) { _, _ = io.Copy(c, c) })
	packed, err := new(dns.Msg).SetQuestion("example.com.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"10.0.0.1:53", netip.AddrPortFrom(outside, resolver.Port()).String()} {
		_, _ = guest.dialUDP(to).Write(packed)
	}
	// Dials run until the gateway is closed if nothing answers.
	dialed := make(chan struct{})
	go func() {
		defer close(dialed)
		if c, err := guest.dial(seen(tcp.Addr())); err == nil {
			_ = c.Close()
		}
	}()
	if nic.LinkOnly {
		eventually(t, "three dropped frames", func() bool { return g.Usage().DroppedFrames >= 3 })
	} else {
		<-dialed
		// Both questions are on their way to the host.
		eventually(t, "both datagrams", func() bool {
			_ = udp.SetReadDeadline(time.Now().Add(timeout))
			if _, _, err := udp.ReadFrom(make([]byte, 512)); err != nil {
				t.Fatal(err)
			}
			datagrams++
			return datagrams == 2
		})
	}
	c := inward(t, g, 80)
	if _, err := c.Write([]byte("echo")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Errorf("a connection to the guest: %v", err)
	}
	g.Close() // ends all work: whatever leaves has left
	guest.vanish()
	<-dialed
	last, err := net.Dial("tcp4", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	for {
		c, err := tcp.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if c.RemoteAddr().String() == last.LocalAddr().String() {
			break
		}
		conns++
	}
	end, err := net.Dial("udp4", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if _, err := end.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	for {
		_ = udp.SetReadDeadline(time.Now().Add(timeout))
		size, _, err := udp.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:size]) == "end" {
			return conns, datagrams
		}
		datagrams++
	}
}

// A gateway for a sandbox without a network leads inward only, even if the guest gives itself a
// default route. The same traffic leaves a gateway for a sandbox with a network.
func TestInwardOnly(t *testing.T) {
	conns, datagrams := escapes(t, func(n *egress.Network) (*egress.Gateway, egress.NIC, error) { return n.Attach("box") })
	if conns != 1 || datagrams < 2 {
		t.Errorf("%d connections and %d datagrams leave a gateway that leads out: this test shows nothing", conns, datagrams)
	}
	conns, datagrams = escapes(t, func(n *egress.Network) (*egress.Gateway, egress.NIC, error) { return n.AttachInward("box") })
	if conns != 0 || datagrams != 0 {
		t.Errorf("%d connections and %d datagrams leave the gateway", conns, datagrams)
	}
}

// The gateway's own address refuses connections and datagrams at once.
func TestInwardRefuses(t *testing.T) {
	g, nic, err := testNetwork(t, egress.Config{}).AttachInward("box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	guest := newGuest(t, nic)
	if c, err := guest.dial("10.0.0.1:53"); err == nil {
		_ = c.Close()
		t.Error("the gateway answers DNS over TCP")
	}
	refusal(t, guest.dialUDP("10.0.0.1:53"))
}

// attachInwardRaw makes a gateway for a sandbox without a network, and the bare end of its link.
func attachInwardRaw(tb testing.TB, cfg egress.Config) (*egress.Gateway, *rawGuest) {
	tb.Helper()
	return rawEnd(tb, testNetwork(tb, cfg).AttachInward)
}

// resolves checks that a gateway still works: it answers an ARP request.
func (r *rawGuest) resolves() {
	r.tb.Helper()
	b := make([]byte, header.EthernetMinimumSize+header.ARPSize)
	header.Ethernet(b).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(r.nic.MAC), DstAddr: header.EthernetBroadcastAddress, Type: header.ARPProtocolNumber,
	})
	h := header.ARP(b[header.EthernetMinimumSize:])
	h.SetIPv4OverEthernet()
	h.SetOp(header.ARPRequest)
	copy(h.HardwareAddressSender(), r.nic.MAC)
	copy(h.ProtocolAddressSender(), r.nic.Address.Addr().AsSlice())
	copy(h.ProtocolAddressTarget(), r.nic.Gateway.AsSlice())
	r.send(b)
	r.awaitFrame("the gateway's hardware address", func(frame []byte) bool {
		return header.Ethernet(frame).Type() == header.ARPProtocolNumber && header.ARP(frame[header.EthernetMinimumSize:]).Op() == header.ARPReply
	})
}

// Of what a gateway for a sandbox with a network accepts, one for a sandbox without accepts segments to its
// address alone.
func TestInwardFrames(t *testing.T) {
	gw, r := attachInwardRaw(t, egress.Config{})
	fragment := func(proto tcpip.TransportProtocolNumber, flags uint8, offset uint16) []byte {
		b := r.frame(proto, r.nic.Gateway, make([]byte, 64))
		header.IPv4(b[header.EthernetMinimumSize:]).SetFlagsFragmentOffset(flags, offset)
		return b
	}
	good := r.frame(header.TCPProtocolNumber, r.nic.Gateway, segment(1, 80, header.TCPFlagSyn))
	if !egress.AcceptInward(good) {
		t.Error("a segment is not accepted")
	}
	bad := map[string][]byte{
		"segment to another address": r.frame(header.TCPProtocolNumber, outside, segment(1, 80, header.TCPFlagSyn)),
		"segment on the link":        r.frame(header.TCPProtocolNumber, netip.MustParseAddr("10.0.0.3"), segment(1, 80, header.TCPFlagSyn)),
		"first TCP fragment":         fragment(header.TCPProtocolNumber, header.IPv4FlagMoreFragments, 0),
		"middle TCP fragment":        fragment(header.TCPProtocolNumber, header.IPv4FlagMoreFragments, 64),
		"last TCP fragment":          fragment(header.TCPProtocolNumber, 0, 64),
		"UDP fragment":               fragment(header.UDPProtocolNumber, header.IPv4FlagMoreFragments, 0),
		"datagram":                   r.frame(header.UDPProtocolNumber, r.nic.Gateway, make([]byte, 8)),
		"datagram to elsewhere":      r.frame(header.UDPProtocolNumber, outside, make([]byte, 8)),
		"echo request":               r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, echoRequest(1, nil)),
	}
	for name, b := range bad {
		if !egress.AcceptFrame(b) {
			t.Errorf("%s is not accepted of a sandbox with a network: this test shows nothing", name)
		}
		if egress.AcceptInward(b) {
			t.Errorf("%s is accepted", name)
		}
		r.send(b)
	}
	bad["short datagram"] = r.frame(header.UDPProtocolNumber, r.nic.Gateway, make([]byte, 7))
	r.send(bad["short datagram"])
	for range 2000 {
		noise := make([]byte, 1+mrand.IntN(1500))
		_, _ = rand.Read(noise)
		r.send(noise)
	}
	r.resolves()
	if d := gw.Usage().DroppedFrames; d != int64(len(bad)+2000) {
		t.Errorf("dropped = %d, want %d", d, len(bad)+2000)
	}
}

// flood sends a frame many times while somebody reads the answers, and returns their number.
func (r *rawGuest) flood(times int, frame func(i int) []byte) (answers int) {
	_ = unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000})
	read, stop := make(chan int), make(chan struct{})
	go func() {
		n := 0
		buf := make([]byte, 1<<16)
		for {
			if size, err := unix.Read(r.fd, buf); err == nil && size > 0 {
				n++
				continue
			}
			select {
			case <-stop:
				read <- n
				return
			default:
			}
		}
	}()
	for i := range times {
		r.send(frame(i))
	}
	close(stop)
	return <-read
}

// Floods of a sandbox without a network use no memory, and are answered at a bounded rate.
func TestInwardFloods(t *testing.T) {
	piece := make([]byte, 8<<10)
	for name, frame := range map[string]func(r *rawGuest, i int) []byte{
		"fragments": func(r *rawGuest, i int) []byte {
			b := r.frame(header.TCPProtocolNumber, r.nic.Gateway, piece)
			h := header.IPv4(b[header.EthernetMinimumSize:])
			h.SetID(uint16(i))
			h.SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, 8)
			return b
		},
		"connections": func(r *rawGuest, i int) []byte {
			return r.frame(header.TCPProtocolNumber, r.nic.Gateway, segment(uint16(i), 80, header.TCPFlagSyn))
		},
		"segments": func(r *rawGuest, i int) []byte {
			return r.frame(header.TCPProtocolNumber, r.nic.Gateway, segment(uint16(i), 80, header.TCPFlagAck))
		},
		"datagrams": func(r *rawGuest, i int) []byte {
			return r.frame(header.UDPProtocolNumber, r.nic.Gateway, piece)
		},
	} {
		t.Run(name, func(t *testing.T) {
			gw, r := attachInwardRaw(t, egress.Config{})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begun, goroutines := time.Now(), runtime.NumGoroutine()
			answers := r.flood(20_000, func(i int) []byte { return frame(r, i) })
			// The limits of connections and of questions, and some for the time.
			if most := 2100 + 1000*int(time.Since(begun)/time.Second+1); answers > most {
				t.Errorf("%d answers, want at most %d", answers, most)
			}
			r.resolves()
			if n := runtime.NumGoroutine() - goroutines; n > 16 {
				t.Errorf("%d goroutines more", n)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2<<20 {
				t.Errorf("heap grew by %d bytes", grown)
			}
			if u := gw.Usage(); u.Flows != 0 {
				t.Errorf("%d flows", u.Flows)
			}
		})
	}
}

// A guest without a network that sends and never reads blocks only itself.
func TestInwardDeafGuest(t *testing.T) {
	gw, r := attachInwardRaw(t, egress.Config{})
	for i := range 5000 {
		r.send(r.frame(header.TCPProtocolNumber, r.nic.Gateway, segment(uint16(i), 80, header.TCPFlagSyn)))
		r.send(r.frame(header.UDPProtocolNumber, r.nic.Gateway, make([]byte, 8)))
	}
	eventually(t, "datagrams dropped", func() bool { return gw.Usage().DroppedFrames == 5000 })
	r.resolves()
}

// A dial of a sandbox without a network that is gone fails.
func TestInwardGuestGone(t *testing.T) {
	gw, nic, err := testNetwork(t, egress.Config{}).AttachInward("box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gw.Close)
	newGuest(t, nic).vanish()
	if c, err := gw.Dial(t.Context(), 80); err == nil {
		_ = c.Close()
		t.Error("Dial() of a guest that is gone succeeded")
	}
}

// The gateways for sandboxes without a network are limited and in the metrics.
func TestInwardGatewaysAreLimited(t *testing.T) {
	n := testNetwork(t, egress.Config{})
	n.MaxInward(2)
	first, nic, err := n.AttachInward("one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Close)
	guest := newGuest(t, nic)
	guest.listen(80, func(c net.Conn) { _, _ = io.Copy(c, c) })
	inward(t, first, 80)
	second, r := rawEnd(t, n.AttachInward)
	r.send([]byte{1})
	r.resolves()
	if _, _, err := n.AttachInward("three"); err == nil {
		t.Error("a third gateway was made")
	}
	attach(t, n)
	want := func(visited float64) {
		t.Helper()
		got := gather(t, n)
		for name, v := range map[string]float64{
			"modbox_egress_sandboxes": 1, "modbox_egress_visited_sandboxes": visited, "modbox_egress_flows": 1, "modbox_egress_dropped_frames_total": 1,
		} {
			if got[name] != v {
				t.Errorf("%s = %v, want %v", name, got[name], v)
			}
		}
	}
	want(2)
	second.Close()
	want(1)
	third, nic, err := n.AttachInward("three")
	if err != nil {
		t.Fatalf("AttachInward() after one was closed = %v", err)
	}
	third.Close()
	_ = nic.File.Close()
}

// gather returns the metrics without labels.
func gather(t *testing.T, n *egress.Network) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return values
}
