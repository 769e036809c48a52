package worker

import (
	"net"
	"testing"
	"time"
)

// TestLimitUnsent checks that the kernel takes little of what nobody reads, whatever the size of its buffers is.
func TestLimitUnsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := peer.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetWriteBuffer(64 << 20); err != nil {
		t.Fatal(err)
	}
	limitUnsent(c)
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // ends the write that blocks
	if n, err := c.Write(make([]byte, 16<<20)); err == nil || n > 3<<20 {
		t.Errorf("the kernel takes %d bytes, %v, want little more than %d", n, err, unsent)
	}
}
