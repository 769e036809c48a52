package kernel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxFrame bounds a frame. The content of a larger frame is dropped.
	maxFrame = 16 << 20
	// maxMessage bounds the frames of a message together, maxFrames their number.
	maxMessage = 24 << 20
	maxFrames  = 64
)

// socket is the client's end of a connection by ZMTP 3.0 (https://rfc.zeromq.org/spec/23/) with the
// mechanism NULL, which is all that a Jupyter client needs of ZeroMQ. One goroutine at a time
// receives; send may be called at any time.
type socket struct {
	conn net.Conn
	r    *bufio.Reader

	mu sync.Mutex // serialises writes
}

// handshakeTimeout bounds a handshake with a kernel that has accepted the connection.
const handshakeTimeout = 20 * time.Second

// newSocket makes a connection one of a socket type: "DEALER" or "SUB". A SUB subscribes to all.
func newSocket(conn net.Conn, kind string) (*socket, error) {
	s := &socket{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) // a connection without deadlines does not exist here
	if err := s.handshake(kind); err != nil {
		return nil, fmt.Errorf("handshake with the kernel: %w", err)
	}
	if kind == "SUB" {
		if err := s.send([]byte{1}); err != nil {
			return nil, err
		}
	}
	return s, conn.SetDeadline(time.Time{})
}

const greetingSize = 64

func (s *socket) handshake(kind string) error {
	greeting := make([]byte, greetingSize)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	if _, err := s.conn.Write(greeting); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.r, greeting); err != nil {
		return err
	}
	if greeting[0] != 0xff || greeting[9]&1 != 1 || greeting[10] < 3 || string(greeting[12:17]) != "NULL\x00" {
		return errors.New("the other end does not speak ZMTP 3 with the mechanism NULL")
	}
	ready := append([]byte("\x05READY"), property("Socket-Type", kind)...)
	if err := s.write(flagCommand, ready); err != nil {
		return err
	}
	flags, body, err := s.frame()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return errors.New("the other end is not ready")
	}
	return nil
}

func property(name, value string) []byte {
	p := append([]byte{byte(len(name))}, name...)
	p = binary.BigEndian.AppendUint32(p, uint32(len(value)))
	return append(p, value...)
}

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// write writes one frame.
func (s *socket) write(flags byte, body []byte) error {
	head := []byte{flags, byte(len(body))}
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
	}
	buffers := net.Buffers{head, body}
	_, err := buffers.WriteTo(s.conn)
	return err
}

// send sends a message.
func (s *socket) send(frames ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := s.write(flags, f); err != nil {
			return err
		}
	}
	return nil
}

// frame reads a frame; the body of a frame that is too large is nil.
func (s *socket) frame() (flags byte, body []byte, err error) {
	if flags, err = s.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	head := make([]byte, 8)
	if flags&flagLong == 0 {
		head = head[:1]
	}
	if _, err := io.ReadFull(s.r, head); err != nil {
		return 0, nil, err
	}
	size := uint64(head[0])
	if flags&flagLong != 0 {
		size = binary.BigEndian.Uint64(head)
	}
	if size > maxFrame {
		for size > 0 {
			n, err := s.r.Discard(int(min(size, 1<<30)))
			if err != nil {
				return 0, nil, err
			}
			size -= uint64(n)
		}
		return flags, nil, nil
	}
	body = make([]byte, size)
	_, err = io.ReadFull(s.r, body)
	return flags, body, err
}

// receive returns the next message. Frames that were too large are nil in it.
func (s *socket) receive() ([][]byte, error) {
	var frames [][]byte
	total := 0
	for {
		flags, body, err := s.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			continue
		}
		if total += len(body); total > maxMessage {
			body = nil
		}
		if len(frames) < maxFrames {
			frames = append(frames, body)
		}
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

func (s *socket) close() { s.conn.Close() }
