package agentapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Tunnel connects to a TCP port on the sandbox's loopback interface, first by IPv4, then by IPv6.
// The connection outlives ctx, and has deadlines and a CloseWrite; its addresses are not
// meaningful. When the server closes its side properly, Read returns io.EOF after the last byte;
// any other end is another error.
//
// Errors of the agent: CodePortClosed when nothing listens there, CodeTooMany.
func (c *Client) Tunnel(ctx context.Context, port uint16) (net.Conn, error) {
	return c.tunnel(ctx, url.Values{"port": {number(port)}}, port)
}

// TunnelSocket connects to a Unix socket in the sandbox. It is otherwise like Tunnel.
func (c *Client) TunnelSocket(ctx context.Context, path string) (net.Conn, error) {
	return c.tunnel(ctx, url.Values{"socket": {path}}, 0)
}

func (c *Client) tunnel(ctx context.Context, query url.Values, port uint16) (net.Conn, error) {
	var upper net.Conn
	r := request{
		method: http.MethodPost, path: "/tunnel", query: query, size: -1, again: true, tunnel: true,
		body: func() io.ReadCloser {
			var upload net.Conn
			upper, upload = net.Pipe()
			return upload
		},
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	a, err := c.open(life, r)
	if err == nil && !stop() {
		a.close()
		err = fmt.Errorf("agent %s: %w", r.path, context.Cause(ctx))
	}
	if err != nil {
		stop()
		end(nil)
		return nil, err
	}
	if a.StatusCode == http.StatusSwitchingProtocols {
		return newDirectTunnel(a, end, port), nil
	}
	lower, download := net.Pipe()
	t := &tunnel{Conn: lower, upper: upper, end: end, answer: a, port: port}
	go t.receive(life, c, r, download)
	return t, nil
}

// tunnel is a connection made of two pipes: the embedded pipe is read, upper is written, each with
// its own deadline.
type tunnel struct {
	net.Conn
	upper  net.Conn
	end    context.CancelCauseFunc
	answer *answer
	port   uint16

	mu  sync.Mutex
	err error // guarded by mu; the error of Read after all data was read
}

// receive copies what the server sends into the pipe until either side ends.
func (t *tunnel) receive(ctx context.Context, c *Client, r request, download net.Conn) {
	err := t.copyFrames(download)
	if err != io.EOF {
		err = c.explain(ctx, r, t.answer.conn, err)
	}
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
	download.Close()
	if err != io.EOF {
		t.upper.Close()
		t.answer.close()
	}
}

// copyFrames returns io.EOF when the server has closed its side.
func (t *tunnel) copyFrames(download net.Conn) error {
	frames := answerFrames(t.answer.Body)
	for {
		f, err := frames.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch f.Type {
		case FrameStdout:
			if _, err := download.Write(f.Data); err != nil {
				return err
			}
		case FrameEOF:
			return io.EOF
		default:
			return fmt.Errorf("%w: unexpected frame 0x%02x", ErrBadAnswer, f.Type)
		}
	}
}

func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if err == io.EOF {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.err != nil {
			err = t.err
		}
	}
	return n, err
}

func (t *tunnel) Write(p []byte) (int, error) { return t.upper.Write(p) }

// CloseWrite ends the data to the server; reading goes on.
func (t *tunnel) CloseWrite() error { return t.upper.Close() }

// Close ends both directions.
func (t *tunnel) Close() error {
	t.end(net.ErrClosed)
	t.Conn.Close()
	t.upper.Close()
	t.answer.close()
	return nil
}

func (t *tunnel) SetDeadline(at time.Time) error {
	t.Conn.SetReadDeadline(at)
	return t.upper.SetWriteDeadline(at)
}

func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.upper.SetWriteDeadline(at) }

func (t *tunnel) LocalAddr() net.Addr  { return tunnelAddr(0) }
func (t *tunnel) RemoteAddr() net.Addr { return tunnelAddr(t.port) }

// tunnelAddr is a port inside the sandbox.
type tunnelAddr uint16

func (tunnelAddr) Network() string  { return "tcp" }
func (a tunnelAddr) String() string { return net.JoinHostPort("sandbox", number(uint16(a))) }
