package agent

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// frame returns an HTTP/2 frame with a payload of n bytes.
func frame(n int) []byte {
	f := make([]byte, frameHeader+n)
	f[0], f[1], f[2] = byte(n>>16), byte(n>>8), byte(n)
	return f
}

// readAll collects bytes from c until none arrive for longer than the nudges take.
func readAll(t *testing.T, c net.Conn) []byte {
	t.Helper()
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			return got
		}
	}
}

func TestNudgesComeAfterWholeFramesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, guest := net.Pipe()
		defer host.Close()
		c := &nudgingConn{Conn: guest}
		defer c.Close()
		first, second := frame(70_000), frame(0)
		whole := append(append([]byte{}, first...), second...)
		// Cut in a header and in a payload: no nudge may come between the pieces.
		pieces := [][]byte{whole[:4], whole[4:20], whole[20:70_000], whole[70_000:70_012], whole[70_012:]}
		go func() {
			for i, p := range pieces {
				if i > 0 {
					<-time.After(3 * nudges[0])
				}
				if _, err := c.Write(p); err != nil {
					t.Errorf("Write: %v", err)
				}
			}
		}()
		got := readAll(t, host)
		want := append(append([]byte{}, whole...), bytes.Repeat(nudge, len(nudges))...)
		if !bytes.Equal(got, want) {
			t.Errorf("the other side read %d bytes, want %d: the frames, then %d nudges", len(got), len(want), len(nudges))
		}
	})
}

func TestNudgeIsAnUnaskedPingAnswer(t *testing.T) {
	const ping, ack = 6, 1
	if len(nudge) != frameHeader+8 || nudge[2] != 8 || nudge[3] != ping || nudge[4] != ack {
		t.Errorf("nudge = %x, want a PING frame with ACK and 8 bytes", nudge)
	}
}

// counted is a connection that counts reads.
type counted struct {
	net.Conn
	from   io.Reader
	atOnce int
	reads  int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.from.Read(p[:min(len(p), c.atOnce)])
}

// TestReadsOfLargeFrames reads as the HTTP/2 server does: a header, then the payload.
func TestReadsOfLargeFrames(t *testing.T) {
	for _, tc := range []struct {
		name         string
		size, frames int
		atOnce       int // maximum bytes per read
		reads        int // at most
		buffer       int // size afterwards
	}{
		{"small", 100, 1000, 100 + frameHeader, 1000, readBuffer},
		{"large", agentapi.MaxFrame, 100, 1 << 20, 103, largeReadBuffer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sent := bytes.Repeat(frame(tc.size), tc.frames)
			from := &counted{from: bytes.NewReader(sent), atOnce: tc.atOnce}
			c := &nudgingConn{Conn: from, in: bufio.NewReaderSize(from, readBuffer)}
			var got []byte
			buf := make([]byte, frameHeader+tc.size)
			for range tc.frames {
				for _, part := range [][]byte{buf[:frameHeader], buf[frameHeader:]} {
					if _, err := io.ReadFull(c, part); err != nil {
						t.Fatal(err)
					}
				}
				got = append(got, buf...)
			}
			if !bytes.Equal(got, sent) || from.reads > tc.reads || c.in.Size() != tc.buffer {
				t.Errorf("the same %v, %d reads, a buffer of %d bytes; want the same, at most %d reads, %d bytes",
					bytes.Equal(got, sent), from.reads, c.in.Size(), tc.reads, tc.buffer)
			}
		})
	}
}
