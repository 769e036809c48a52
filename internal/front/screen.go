package front

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// screen connects WebSockets with the VNC server.
type screen struct{ socket string }

func (s *screen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var d net.Dialer
	server, err := d.DialContext(r.Context(), "unix", s.socket)
	if err != nil {
		starting(w, "screen")
		return
	}
	defer server.Close()
	ws, err := accept(w, r, "binary")
	if err != nil {
		return // Accept has answered
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	viewer := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	defer viewer.Close()
	go func() {
		defer cancel()
		_, _ = io.Copy(server, viewer) // the end of either side is the end of both
	}()
	_, _ = io.Copy(viewer, server)
}

// accept accepts a WebSocket. The sandbox's URL is a secret, so any page that knows it may connect.
func accept(w http.ResponseWriter, r *http.Request, protocols ...string) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols, InsecureSkipVerify: true})
}
