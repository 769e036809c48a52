package executions

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/client/wire"
)

// TestMessageBrokenOff: of a frame that a broken connection cut off nothing is input, which
// would be other bytes than were sent.
func TestMessageBrokenOff(t *testing.T) {
	got := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		conn.SetReadLimit(wire.AttachReadLimit)
		var all []byte
		take := func(p []byte) error { all = append(all, p...); return nil }
		messages(t.Context(), conn, take, func(wire.AttachControl) {})
		got <- all
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	key := []byte{1, 2, 3, 4}
	frame := append([]byte{0x82, 0x80 | 100}, key...) // of 100 bytes, masked
	for i, b := range append([]byte{wire.ChannelStdin}, bytes.Repeat([]byte("a"), 50)...) {
		frame = append(frame, b^key[i%4])
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if all := <-got; len(bytes.Trim(all, "a")) > 0 {
		t.Errorf("input is %q", all)
	}
}
