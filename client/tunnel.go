package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/client/wire"
)

// PortConn is a connection to a TCP port of a sandbox. One goroutine may read while another writes; the other
// methods are safe for concurrent use.
type PortConn struct {
	conn *websocket.Conn
	ctx  context.Context
	stop context.CancelFunc

	message io.Reader // the source of Read; nil between messages
	ended   bool      // Read has read the end

	writing sync.Mutex
	closed  bool // guarded by writing; CloseWrite was called
}

// Dial connects to a port of a sandbox, which need not be published. The end of ctx, and Close, end the
// connection. Errors: NotFound; PortClosed when nothing listens there; Ended.
func (c *Ports) Dial(ctx context.Context, ref string, port uint16) (*PortConn, error) {
	conn, err := c.dial(ctx, sandboxPath(ref, "ports", strconv.Itoa(int(port)), "connect"))
	if err != nil {
		return nil, err
	}
	p := &PortConn{conn: conn}
	p.ctx, p.stop = context.WithCancel(ctx)
	return p, nil
}

// Read reads bytes of the port; io.EOF after the last.
func (p *PortConn) Read(b []byte) (int, error) {
	for !p.ended {
		if p.message == nil {
			kind, r, err := p.conn.Reader(p.ctx)
			if err != nil {
				return 0, p.broken(err)
			}
			if kind == websocket.MessageText {
				var m wire.TunnelMessage
				data, err := io.ReadAll(r)
				if err != nil {
					return 0, p.broken(err)
				}
				p.ended = json.Unmarshal(data, &m) == nil && m.Type == wire.TunnelEnd
				continue
			}
			p.message = r
		}
		n, err := p.message.Read(b)
		if errors.Is(err, io.EOF) {
			p.message, err = nil, nil
		}
		if n > 0 || err != nil || len(b) == 0 {
			return n, p.broken(err)
		}
	}
	return 0, io.EOF
}

// broken returns the error of a connection that ended in the middle.
func (p *PortConn) broken(err error) error {
	if err == nil || p.ctx.Err() == nil && websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		return err
	}
	return errors.Join(net.ErrClosed, err)
}

// Write sends bytes to the port.
func (p *PortConn) Write(b []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	sent := 0
	for len(b) > 0 {
		n := min(len(b), maxWrite)
		if err := p.conn.Write(p.ctx, websocket.MessageBinary, b[:n]); err != nil {
			return sent, err
		}
		sent, b = sent+n, b[n:]
	}
	return sent, nil
}

// CloseWrite tells the port that no more bytes come; reading goes on.
func (p *PortConn) CloseWrite() error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.conn.Write(p.ctx, websocket.MessageText, []byte(wire.TunnelEOF))
}

// Close ends the connection.
func (p *PortConn) Close() error {
	p.stop()
	return p.conn.CloseNow()
}
