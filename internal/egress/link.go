package egress

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	maxFrame = header.EthernetMinimumSize + MTU
	// frameRate bounds the CPU time that a sandbox's frames cost this process; at this rate even
	// the smallest frames use a fraction of a core.
	frameRate  = 100_000
	frameBurst = 20_000
)

// frames are buffers for a frame, with an additional byte to notice longer frames.
var frames = sync.Pool{New: func() any { return new([maxFrame + 1]byte) }}

// link is our end of the socket pair as an interface of the stack. Waiting for the sandbox costs a
// goroutine, but neither a thread nor a buffer.
type link struct {
	gateway *Gateway
	file    *os.File
	conn    syscall.RawConn
	rate    *rate.Limiter

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // guarded by mu
}

var _ stack.LinkEndpoint = (*link)(nil)

// newLink takes ownership of file when it succeeds.
func newLink(g *Gateway, file *os.File) (*link, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &link{gateway: g, file: file, conn: conn, rate: rate.NewLimiter(frameRate, frameBurst)}, nil
}

// close ends read and WritePackets.
func (l *link) close() { _ = l.file.Close() }

// read delivers frames to the stack until the link is closed.
func (l *link) read() {
	g := l.gateway
	for g.ctx.Err() == nil {
		buf, n, err := l.receive()
		if err != nil {
			if g.ctx.Err() == nil {
				g.log.Error("network of a sandbox cut: its link failed", "error", err)
				g.cut()
			}
			return
		}
		l.deliver(buf[:n])
		frames.Put(buf)
		if err := l.rate.Wait(g.ctx); err != nil {
			return
		}
	}
}

// receive waits for a frame. The buffer comes from frames; n is larger than maxFrame for a frame
// that was longer.
func (l *link) receive() (buf *[maxFrame + 1]byte, n int, err error) {
	var readErr error
	err = l.conn.Read(func(fd uintptr) bool {
		b := frames.Get().(*[maxFrame + 1]byte)
		for {
			n, readErr = unix.Read(int(fd), b[:])
			if readErr != unix.EINTR {
				break
			}
		}
		if readErr != nil {
			frames.Put(b)
			return readErr != unix.EAGAIN
		}
		buf = b
		return true
	})
	if err != nil {
		return nil, 0, err
	}
	if readErr != nil {
		return nil, 0, os.NewSyscallError("read", readErr)
	}
	return buf, n, nil
}

// deliver passes a frame to the stack if a sandbox may send it. The stack gets a copy, no larger
// than the frame, because it may retain it.
func (l *link) deliver(frame []byte) {
	proto, ok := acceptFrame(frame)
	l.mu.RLock()
	d := l.dispatcher
	l.mu.RUnlock()
	if !ok || d == nil {
		l.gateway.usage.dropped.Add(1)
		return
	}
	l.gateway.usage.sent.Add(int64(len(frame) - header.EthernetMinimumSize))
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		Payload: buffer.MakeWithView(buffer.NewViewWithData(frame)),
	})
	defer pkt.DecRef()
	if l.ParseHeader(pkt) {
		pkt.PktType = tcpip.PacketHost
		d.DeliverNetworkPacket(proto, pkt)
	}
}

// WritePackets sends frames to the sandbox and waits while the sandbox does not read: only the
// stack's queue calls it, and drops excess frames. When the other end is closed, the sandbox is
// gone, and WritePackets cuts the whole gateway.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	written := 0
	for _, pkt := range pkts.AsSlice() {
		var sendErr error
		err := l.conn.Write(func(fd uintptr) bool {
			for {
				_, sendErr = unix.SendmsgBuffers(int(fd), pkt.AsSlices(), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				if sendErr != unix.EINTR {
					return sendErr != unix.EAGAIN
				}
			}
		})
		if err != nil {
			break // closed
		}
		switch sendErr {
		case nil:
			written++
			l.gateway.usage.received.Add(int64(pkt.Size() - header.EthernetMinimumSize))
		case unix.ECONNREFUSED, unix.ENOTCONN:
			l.gateway.cut()
		}
	}
	if written == 0 {
		return 0, &tcpip.ErrNoBufferSpace{}
	}
	return written, nil
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// AddHeader implements stack.LinkEndpoint. Only the sandbox is on this link, so there is no address
// to resolve.
func (l *link) AddHeader(pkt *stack.PacketBuffer) {
	eth := header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize))
	eth.Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(gatewayMAC), DstAddr: tcpip.LinkAddress(guestMAC), Type: pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (l *link) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// Capabilities implements stack.LinkEndpoint; see [NIC] about checksums.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload
}

// The rest of stack.LinkEndpoint: constants, and methods without effect.

func (l *link) MTU() uint32                             { return MTU }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return header.EthernetMinimumSize }
func (l *link) LinkAddress() tcpip.LinkAddress          { return tcpip.LinkAddress(gatewayMAC) }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }
func (l *link) Wait()                                   {}
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}
