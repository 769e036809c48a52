package agentapi

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// TunnelProtocol is the value of the header Upgrade that turns a connection into a tunnel.
const TunnelProtocol = "modbox-tunnel"

// TunnelReader reads the data in the frames of a tunnel on a connection of its own: FrameStdout, and FrameEOF where
// the sender ends its data.
type TunnelReader struct {
	in   *bufio.Reader
	left int  // bytes of the frame being read
	eof  bool // FrameEOF was read
}

// NewTunnelReader returns a reader of the frames in r, which begins with the bytes in r's buffer.
func NewTunnelReader(r *bufio.Reader) *TunnelReader { return &TunnelReader{in: r} }

// Read implements [io.Reader]. It returns io.EOF after FrameEOF, io.ErrUnexpectedEOF when the connection ends without
// it, and an error with [ErrBadAnswer] in its chain for other frames. After an expired deadline it can be called again.
func (t *TunnelReader) Read(p []byte) (int, error) {
	for t.left == 0 {
		if t.eof {
			return 0, io.EOF
		}
		if err := t.next(); err != nil {
			return 0, unexpected(err)
		}
	}
	n, err := t.in.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, unexpected(err)
}

// next reads the header of a frame.
func (t *TunnelReader) next() error {
	head, err := t.in.Peek(FrameHeader)
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[1:])
	switch kind := FrameType(head[0]); {
	case kind == FrameEOF && size == 0:
		t.eof = true
	case kind == FrameStdout && size <= MaxFrame:
		t.left = int(size)
	default:
		return fmt.Errorf("%w: a tunnel has frame 0x%02x of %d bytes", ErrBadAnswer, head[0], size)
	}
	_, err = t.in.Discard(FrameHeader)
	return err
}

// unexpected turns the end of a connection without FrameEOF into an error.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// directTunnel is a tunnel on a connection of its own, with its deadlines.
type directTunnel struct {
	net.Conn
	in     *TunnelReader
	end    context.CancelCauseFunc
	answer *answer
	port   uint16

	mu  sync.Mutex
	err error // guarded by mu; the reason why no more can be written
}

// newDirectTunnel returns the tunnel of an answer that has changed the protocol.
func newDirectTunnel(a *answer, end context.CancelCauseFunc, port uint16) *directTunnel {
	return &directTunnel{Conn: a.conn.nc, in: NewTunnelReader(bufio.NewReader(a.Body)), end: end, answer: a, port: port}
}

func (t *directTunnel) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrBadAnswer) {
		err = fmt.Errorf("%w: tunnel: %w", ErrUnreachable, err)
	}
	return n, err
}

// Write sends data. After an error nothing more can be written, also after an expired deadline: part of a frame may have been sent.
func (t *directTunnel) Write(p []byte) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < len(p) {
		part := p[n:min(len(p), n+MaxFrame)]
		if err := t.send(FrameStdout, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// frames has buffers for frames being sent. A frame is sent by a single system call, which wakes the agent once.
var frames = sync.Pool{New: func() any { return new([]byte) }}

// send sends a frame.
//
// Preconditions: t.mu is held.
func (t *directTunnel) send(kind FrameType, data []byte) error {
	if t.err != nil {
		return t.err
	}
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	*buf = AppendFrame((*buf)[:0], kind, data)
	_, t.err = t.Conn.Write(*buf)
	return t.err
}

// CloseWrite ends the data to the server; reading goes on.
func (t *directTunnel) CloseWrite() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.send(FrameEOF, nil); err != nil {
		return err
	}
	t.err = net.ErrClosed
	return nil
}

// Close ends both directions.
func (t *directTunnel) Close() error {
	t.end(net.ErrClosed)
	err := t.Conn.Close()
	t.answer.close()
	return err
}

func (t *directTunnel) LocalAddr() net.Addr  { return tunnelAddr(0) }
func (t *directTunnel) RemoteAddr() net.Addr { return tunnelAddr(t.port) }
