package egress_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/modbox/modbox/internal/egress"
)

// Nothing of a gateway outlives its Close. Only the links of the tests' guests, which gateways do
// not use, leave some goroutines.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gvisor.dev/gvisor/pkg/tcpip/link/fdbased.(*processor).start"))
}

// rawGuest is a sandbox that sends arbitrary frames.
type rawGuest struct {
	tb  testing.TB
	fd  int
	nic egress.NIC
}

// attachRaw makes a gateway and the bare end of its link.
func attachRaw(tb testing.TB, cfg egress.Config) (*egress.Gateway, *rawGuest) {
	tb.Helper()
	return rawly(tb, testNetwork(tb, cfg))
}

// rawly does the same on an existing network.
func rawly(tb testing.TB, n *egress.Network) (*egress.Gateway, *rawGuest) {
	tb.Helper()
	g, nic, err := n.Attach("box")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	tb.Cleanup(func() { _ = nic.File.Close() })
	fd := int(nic.File.Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		tb.Fatal(err)
	}
	return g, &rawGuest{tb: tb, fd: fd, nic: nic}
}

// send writes a frame, and waits while the gateway is busy.
func (r *rawGuest) send(frame []byte) {
	r.tb.Helper()
	for {
		err := unix.Send(r.fd, frame, unix.MSG_NOSIGNAL)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			r.tb.Fatalf("send frame: %v", err)
		}
	}
}

// frame makes an IPv4 frame from the sandbox.
func (r *rawGuest) frame(proto tcpip.TransportProtocolNumber, dst netip.Addr, payload []byte) []byte {
	b := make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize+len(payload))
	header.Ethernet(b).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(r.nic.MAC), DstAddr: tcpip.LinkAddress(r.nic.GatewayMAC), Type: header.IPv4ProtocolNumber,
	})
	h := header.IPv4(b[header.EthernetMinimumSize:])
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(h)), TTL: 64, Protocol: uint8(proto),
		SrcAddr: tcpip.AddrFrom4(r.nic.Address.Addr().As4()), DstAddr: tcpip.AddrFrom4(dst.As4()),
	})
	h.SetChecksum(^h.CalculateChecksum())
	copy(b[header.EthernetMinimumSize+header.IPv4MinimumSize:], payload)
	return b
}

func segment(from, to uint16, flags header.TCPFlags) []byte {
	h := header.TCP(make([]byte, header.TCPMinimumSize))
	h.Encode(&header.TCPFields{
		SrcPort: from, DstPort: to, SeqNum: mrand.Uint32(), DataOffset: header.TCPMinimumSize,
		Flags: flags, WindowSize: 65535,
	})
	return h
}

func echoRequest(seq uint16, data []byte) []byte {
	h := header.ICMPv4(make([]byte, header.ICMPv4MinimumSize+len(data)))
	h.SetType(header.ICMPv4Echo)
	h.SetIdent(7)
	h.SetSequence(seq)
	copy(h.Payload(), data)
	h.SetChecksum(^checksum.Checksum(h, 0))
	return h
}

// awaitICMP reads frames until match accepts an ICMP message.
func (r *rawGuest) awaitICMP(what string, match func(from tcpip.Address, h header.ICMPv4) bool) {
	r.tb.Helper()
	r.await(what, func(h header.IPv4) bool {
		return h.TransportProtocol() == header.ICMPv4ProtocolNumber && match(h.SourceAddress(), header.ICMPv4(h.Payload()))
	})
}

// await reads frames until match accepts a packet.
func (r *rawGuest) await(what string, match func(header.IPv4) bool) {
	r.tb.Helper()
	// Wakes a read that would wait for ever.
	_ = unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(timeout / time.Second)})
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(r.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			r.tb.Fatalf("wait for %s: %d, %v", what, n, err)
		}
		if n < header.EthernetMinimumSize || header.Ethernet(buf).Type() != header.IPv4ProtocolNumber {
			continue
		}
		if match(header.IPv4(buf[header.EthernetMinimumSize:n])) {
			return
		}
	}
}

// alive checks that the gateway still works: it answers an echo request.
func (r *rawGuest) alive() {
	r.tb.Helper()
	seq := uint16(mrand.Uint32())
	r.send(r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, echoRequest(seq, []byte("alive?"))))
	r.awaitICMP("echo of the gateway", func(_ tcpip.Address, h header.ICMPv4) bool {
		return h.Type() == header.ICMPv4EchoReply && h.Sequence() == seq && string(h.Payload()) == "alive?"
	})
}

// Echo requests to a closed address are refused; the gateway does not answer them itself.
func TestEchoDenied(t *testing.T) {
	_, r := attachRaw(t, egress.Config{})
	dst := netip.MustParseAddr("169.254.169.254")
	r.send(r.frame(header.ICMPv4ProtocolNumber, dst, echoRequest(1, nil)))
	r.awaitICMP("refusal", func(from tcpip.Address, h header.ICMPv4) bool {
		if h.Type() == header.ICMPv4EchoReply {
			t.Error("a closed address answered")
		}
		return h.Type() == header.ICMPv4DstUnreachable && h.Code() == header.ICMPv4AdminProhibited && from == tcpip.AddrFrom4(r.nic.Gateway.As4())
	})
}

// Frames that a sandbox may not send are dropped, and the gateway keeps working.
func TestGarbageFrames(t *testing.T) {
	gw, r := attachRaw(t, egress.Config{})
	good := r.frame(header.UDPProtocolNumber, r.nic.Gateway, make([]byte, 8))
	mangle := func(f func(b []byte)) []byte {
		b := append([]byte(nil), good...)
		f(b)
		return b
	}
	ip := header.EthernetMinimumSize
	bad := [][]byte{
		{1}, make([]byte, 14), make([]byte, 60), make([]byte, egress.MTU+15), make([]byte, 60000),
		mangle(func(b []byte) { b[0] ^= 2 }),                                                // to another station
		mangle(func(b []byte) { b[6] ^= 2 }),                                                // from another station
		mangle(func(b []byte) { binary.BigEndian.PutUint16(b[12:], 0x86dd) }),               // IPv6
		mangle(func(b []byte) { b[ip+15]++ }),                                               // forged source
		mangle(func(b []byte) { b[ip] = 0x46 }),                                             // options
		mangle(func(b []byte) { b[ip] = 0x4f }),                                             // longer than the packet
		mangle(func(b []byte) { binary.BigEndian.PutUint16(b[ip+2:], 65535) }),              // the same
		mangle(func(b []byte) { b[ip+9] = 47 }),                                             // a tunnel
		mangle(func(b []byte) { copy(b[ip+16:], []byte{224, 0, 0, 1}) }),                    // multicast
		mangle(func(b []byte) { copy(b[ip+16:], []byte{255, 255, 255, 255}) }),              // broadcast
		mangle(func(b []byte) { copy(b[ip+16:], []byte{10, 0, 0, 2}) }),                     // itself
		r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, []byte{5, 0, 0, 0, 0, 0, 0, 0}), // redirect
		r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, []byte{8}),
	}
	for range 2000 {
		noise := make([]byte, 1+mrand.IntN(1500))
		_, _ = rand.Read(noise)
		bad = append(bad, noise)
	}
	for i, b := range bad {
		if egress.AcceptFrame(b) {
			t.Errorf("frame %d is accepted: %x", i, b[:min(len(b), 64)])
		}
		r.send(b)
	}
	r.alive()
	if d := gw.Usage().DroppedFrames; d != int64(len(bad)) {
		t.Errorf("dropped = %d, want %d", d, len(bad))
	}
}

// A flood of connections that are never completed uses a bounded number of flows, sockets and
// goroutines.
func TestSYNFlood(t *testing.T) {
	addr := netip.MustParseAddrPort(echoServer(t))
	gw, r := attachRaw(t, egress.Config{AllowCIDRs: loopback})
	// The answers must be read, or the flood stops by itself.
	drained, stop := make(chan struct{}), make(chan struct{})
	_ = unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000})
	go func() {
		defer close(drained)
		buf := make([]byte, 1<<16)
		for {
			_, _ = unix.Read(r.fd, buf)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	before := runtime.NumGoroutine()
	for i := range 30_000 {
		r.send(r.frame(header.TCPProtocolNumber, addr.Addr(), segment(uint16(i), addr.Port(), header.TCPFlagSyn)))
		if i%1000 == 0 {
			if u, n := gw.Usage(), runtime.NumGoroutine()-before; u.Flows > 128 || n > 4*128 {
				t.Fatalf("after %d: %d flows, %d goroutines", i, u.Flows, n)
			}
		}
	}
	close(stop)
	<-drained
}

// Fragments that never become complete, and the rest of a flood, are discarded; memory stays within
// bounds.
func TestFragmentFlood(t *testing.T) {
	_, r := attachRaw(t, egress.Config{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	piece := make([]byte, 8<<10)
	for i := range 20_000 {
		b := r.frame(header.UDPProtocolNumber, netip.MustParseAddr("8.8.8.8"), piece)
		h := header.IPv4(b[header.EthernetMinimumSize:])
		h.SetID(uint16(i))
		h.SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, 8)
		r.send(b)
	}
	r.alive()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("heap grew by %d bytes for 160 MB of fragments", grown)
	}
}

// A guest that sends and never reads blocks only itself.
func TestDeafGuest(t *testing.T) {
	gw, r := attachRaw(t, egress.Config{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	data := make([]byte, 16<<10)
	for i := range 5000 {
		r.send(r.frame(header.ICMPv4ProtocolNumber, r.nic.Gateway, echoRequest(uint16(i), data)))
	}
	eventually(t, "frames taken", func() bool { return gw.Usage().SentBytes > 5000*16<<10 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("heap grew by %d bytes for 80 MB of echo requests", grown)
	}
}

// Flows have a limit for each sandbox and a limit for all; more are refused, and new flows are
// possible when a flow ends.
func TestFlowLimits(t *testing.T) {
	for name, cfg := range map[string]egress.Config{
		"sandbox": {MaxFlows: 10},
		"total":   {MaxTotalFlows: 10},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.AllowCIDRs = loopback
			gw, g := attachWith(t, cfg)
			addr := echoServer(t)
			var conns []io.Closer
			for range 10 {
				conns = append(conns, g.mustDial(addr))
			}
			if _, err := g.dial(addr); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("dial = %v, want refused", err)
			}
			_ = conns[0].Close()
			eventually(t, "a flow ended", func() bool { return gw.Usage().Flows == 9 })
			g.mustDial(addr)
		})
	}
}

// A finished connection counts until the guest has read the rest of its data.
func TestUnreadRestCounts(t *testing.T) {
	const size = 256 << 10 // fits into the gateway's buffer, but not into the guest's
	closed := make(chan struct{})
	addr := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write(make([]byte, size))
		_ = c.Close()
		close(closed)
	})
	gw, g := attachWith(t, egress.Config{AllowCIDRs: loopback})
	small := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: 64 << 10, Max: 64 << 10}
	if err := g.stack.SetTransportProtocolOption(header.TCPProtocolNumber, &small); err != nil {
		t.Fatal(err)
	}
	c := g.mustDial(addr)
	_ = c.CloseWrite()
	<-closed
	if f := gw.Usage().Flows; f != 1 {
		t.Errorf("flows = %d, want 1", f)
	}
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		t.Errorf("rest is %d bytes, %v", n, err)
	}
	eventually(t, "flow freed", func() bool { return gw.Usage().Flows == 0 })
}

// However many flows there are, the memory promised to them stays within the budget, and each gets
// the minimum at least.
func TestBudget(t *testing.T) {
	const flows, extra = 500, 8 << 20
	b := egress.NewTestBudget(flows, extra)
	var releases []func()
	promised, first, last := 0, 0, 0
	for {
		buffer, release, ok := b.TakeFlow(2 * (egress.MaxBuffer - egress.MinBuffer))
		if !ok {
			break
		}
		if first == 0 {
			first = buffer
		}
		last = buffer
		if buffer < egress.MinBuffer || buffer > egress.MaxBuffer {
			t.Fatalf("buffer of %d bytes", buffer)
		}
		promised += 2 * (buffer - egress.MinBuffer)
		releases = append(releases, release)
	}
	if len(releases) != flows || promised > extra || last >= first {
		t.Errorf("%d flows, %d bytes beyond the minimum, buffers from %d to %d", len(releases), promised, first, last)
	}
	for _, release := range releases {
		release()
	}
	if buffer, _, ok := b.TakeFlow(2 * (egress.MaxBuffer - egress.MinBuffer)); !ok || buffer != first {
		t.Errorf("after all was given back: %d, %t; want %d", buffer, ok, first)
	}
}

// A new gateway resets connections over an earlier gateway.
func TestReattach(t *testing.T) {
	addr := netip.MustParseAddr("8.8.8.8")
	_, r := attachRaw(t, egress.Config{})
	r.send(r.frame(header.TCPProtocolNumber, addr, segment(4711, 443, header.TCPFlagAck|header.TCPFlagPsh)))
	r.await("reset", func(h header.IPv4) bool {
		return h.TransportProtocol() == header.TCPProtocolNumber && h.SourceAddress() == tcpip.AddrFrom4(addr.As4()) &&
			header.TCP(h.Payload()).DestinationPort() == 4711 && header.TCP(h.Payload()).Flags().Contains(header.TCPFlagRst)
	})
}

// Close cuts everything in progress, from connections to questions.
func TestClose(t *testing.T) {
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gw, g := attachWith(t, egress.Config{
		AllowCIDRs: loopback, Resolvers: []netip.AddrPort{netip.MustParseAddrPort(silent.LocalAddr().String())},
	})
	ended := make(chan error, 1)
	addr := serve(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	c := g.mustDial(addr)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	q := g.dialUDP("10.0.0.1:53")
	if _, err := q.Write([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	_ = silent.SetReadDeadline(time.Now().Add(timeout))
	if _, _, err := silent.ReadFrom(buf); err != nil {
		t.Fatalf("the question did not come: %v", err)
	}
	closed := make(chan struct{})
	go func() {
		gw.Close()
		close(closed)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for _, ch := range []<-chan struct{}{closed, after(ended)} {
		select {
		case <-ch:
		case <-ctx.Done():
			t.Fatal("not closed")
		}
	}
	if u := gw.Usage(); u.Flows != 0 {
		t.Errorf("flows after close = %d", u.Flows)
	}
}

// after returns a channel that is closed when a value arrives.
func after(ch <-chan error) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		<-ch
		close(done)
	}()
	return done
}

// faulty is a policy that panics.
type faulty struct{}

func (faulty) Allow(_ context.Context, f egress.Flow) egress.Decision {
	if f.Sandbox == "box" {
		panic("a fault")
	}
	return egress.Decision{Allow: true}
}

// A panic on a sandbox's packet path costs that sandbox its network, and affects no other.
func TestFault(t *testing.T) {
	n := testNetwork(t, egress.Config{AllowCIDRs: loopback, Policy: faulty{}})
	addr := echoServer(t)
	other, nic, err := n.Attach("other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	g := newGuest(t, nic)
	c := g.mustDial(addr)
	_, r := rawly(t, n)
	r.send(r.frame(header.TCPProtocolNumber, outside, segment(1, 80, header.TCPFlagSyn)))
	eventually(t, "end of the link", func() bool {
		return errors.Is(unix.Send(r.fd, []byte{0}, unix.MSG_NOSIGNAL), unix.ECONNREFUSED)
	})
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
}

// When the guest ends, its flows end at their next use, without a call of Close.
func TestGuestGone(t *testing.T) {
	accepted, gone, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	addr := serve(t, func(c *net.TCPConn) {
		close(accepted)
		<-gone
		_, _ = c.Write([]byte("are you there?"))
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	n := testNetwork(t, egress.Config{AllowCIDRs: loopback})
	gw, nic, err := n.Attach("box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gw.Close)
	g := newGuest(t, nic)
	g.mustDial(addr)
	<-accepted
	g.vanish()
	close(gone)
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Fatal("the connection outlived its guest")
	}
	eventually(t, "flow freed", func() bool { return gw.Usage().Flows == 0 })
}
