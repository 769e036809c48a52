package agentapi

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// FrameHeader is the length of a frame's header, which precedes its payload.
const FrameHeader = 5

// Frame is a message of an exec, attach or tunnel body.
type Frame struct {
	Type FrameType
	// Data is the payload. It is valid until the next call to the reader that returned it.
	Data []byte
	// Exit is set on frames of type [FrameExit] returned by a [Stream].
	Exit *Exit
}

// maxPayload is the largest payload a frame of this type may have.
func (t FrameType) maxPayload() int {
	if t == FrameStart {
		return MaxStart
	}
	return MaxFrame
}

// PutFrameHeader writes the header of a frame with a payload of n bytes into b,
// which has at least [FrameHeader] bytes.
func PutFrameHeader(b []byte, t FrameType, n int) {
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(n))
}

// AppendFrame appends a whole frame to b. The caller must not exceed the type's limit.
func AppendFrame(b []byte, t FrameType, data []byte) []byte {
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// AppendJSONFrame appends a frame whose payload is v as JSON. It fails when v
// cannot be encoded or is larger than the type allows.
func AppendJSONFrame(b []byte, t FrameType, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	if len(data) > t.maxPayload() {
		return b, fmt.Errorf("frame 0x%02x has %d bytes, at most %d are allowed", t, len(data), t.maxPayload())
	}
	return AppendFrame(b, t, data), nil
}

// FrameReader reads frames from an untrusted byte stream. It is not safe for concurrent use.
type FrameReader struct {
	br  *bufio.Reader
	buf []byte
	// noStart limits all frames to MaxFrame.
	noStart bool
}

// NewFrameReader returns a reader of the frames in r. It reads ahead.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{br: bufio.NewReader(r)}
}

// answerFrames reads the frames of an agent's answer, which contains no [FrameStart].
func answerFrames(r io.Reader) *FrameReader {
	f := NewFrameReader(r)
	f.noStart = true
	return f
}

// Next returns the next frame. The error is io.EOF only at the end of the stream
// between two frames, io.ErrUnexpectedEOF inside one, and has [ErrBadAnswer] in
// its chain for a payload over the limit of its type.
func (f *FrameReader) Next() (Frame, error) {
	var head [FrameHeader]byte
	if _, err := io.ReadFull(f.br, head[:]); err != nil {
		return Frame{}, err
	}
	t := FrameType(head[0])
	size := binary.BigEndian.Uint32(head[1:])
	if size > uint32(t.maxPayload()) || f.noStart && size > MaxFrame {
		return Frame{}, fmt.Errorf("%w: frame 0x%02x announces %d bytes", ErrBadAnswer, t, size)
	}
	if err := f.fill(int(size)); err != nil {
		return Frame{}, err
	}
	return Frame{Type: t, Data: f.buf[:size]}, nil
}

// fill reads n bytes into the buffer, which grows with the bytes that arrive, so that announcing a
// large size costs the sender as many bytes.
func (f *FrameReader) fill(n int) error {
	const step = 16 << 10
	for have := 0; have < n; {
		want := min(n, have+max(step, have))
		if cap(f.buf) < want {
			grown := make([]byte, want)
			copy(grown, f.buf[:have])
			f.buf = grown
		}
		f.buf = f.buf[:cap(f.buf)]
		if _, err := io.ReadFull(f.br, f.buf[have:want]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		have = want
	}
	return nil
}
