package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// maxTunnels bounds the open connections to ports.
	maxTunnels = 1024
	// dialTimeout bounds connecting to a port whose server does not accept.
	dialTimeout = 10 * time.Second
	// Each direction begins with a small buffer, because many tunnels are idle, and gets a larger
	// one as soon as a read fills it.
	smallBuffer = 4 << 10
	largeBuffer = agentapi.MaxFrame
)

// grown returns the buffer for the read after a read of n bytes.
func grown(buf []byte, n int) []byte {
	if n < len(buf) || len(buf) >= largeBuffer {
		return buf
	}
	return make([]byte, largeBuffer)
}

// tunnel connects the stream to a port on the loopback interface, or to a Unix socket.
func (a *Agent) tunnel(w http.ResponseWriter, r *http.Request) error {
	select {
	case a.tunnels <- struct{}{}:
		defer func() { <-a.tunnels }()
	default:
		return answer.Errorf(agentapi.CodeTooMany, "%d connections to this sandbox's ports are already open", maxTunnels)
	}
	conn, err := dialServer(r)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Each direction ends on its own. The tunnel ends when both have ended, or when either fails,
	// which closes the connection and so wakes the other.
	stop := context.AfterFunc(r.Context(), func() { conn.Close() })
	defer stop()
	if r.ProtoMajor == 1 {
		return tunnelAlone(w, conn)
	}
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	flush()
	var up error
	var uploading sync.WaitGroup
	uploading.Go(func() {
		if up = upload(conn, r.Body); up != nil {
			conn.Close()
		}
	})
	if err := download(w, flush, conn); err != nil {
		return answer.ErrAborted
	}
	uploading.Wait()
	if up != nil {
		return answer.ErrAborted
	}
	return nil
}

// tunnelAlone makes the connection of the request a tunnel to a server.
func tunnelAlone(w http.ResponseWriter, server net.Conn) error {
	host, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer host.Close()
	nudging := host.(*nudgingConn)
	nudging.tunnel = true
	if _, err := io.WriteString(host, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+agentapi.TunnelProtocol+"\r\n\r\n"); err != nil {
		return answer.ErrAborted
	}
	var up error
	var uploading sync.WaitGroup
	uploading.Go(func() {
		if up = upload(patientConn{server, nudging}, agentapi.NewTunnelReader(buffered.Reader)); up != nil {
			server.Close()
		}
	})
	if err := download(host, func() error { return nil }, server); err != nil {
		host.Close()
		server.Close()
		uploading.Wait()
		return answer.ErrAborted
	}
	uploading.Wait()
	if up != nil {
		return answer.ErrAborted
	}
	return nil
}

// patientConn is the connection to a server that may take its time to read, while the host waits.
type patientConn struct {
	net.Conn
	host *nudgingConn
}

// hostCheck is the interval at which a blocked write checks that the host has not hung up: nothing reads the connection to the host meanwhile.
const hostCheck = time.Second

// Write fails when the host has gone.
func (c patientConn) Write(p []byte) (n int, err error) {
	for {
		if err := c.SetWriteDeadline(time.Now().Add(hostCheck)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:])
		n += m
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if c.host.hungUp() {
			return n, errHungUp
		}
	}
}

// errHungUp reports that the host has closed a connection.
var errHungUp = errors.New("the host has hung up")

// CloseWrite ends the data to the server.
func (c patientConn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// dialServer connects to the port or the Unix socket that a request names.
func dialServer(r *http.Request) (net.Conn, error) {
	if path := r.FormValue("socket"); path != "" {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(r.Context(), "unix", path)
		if err != nil {
			return nil, answer.Errorf(agentapi.CodePortClosed, "nothing listens on the socket %s in the sandbox", path)
		}
		return conn, nil
	}
	port, err := strconv.ParseUint(r.FormValue("port"), 10, 16)
	if err != nil || port == 0 {
		return nil, answer.Invalid("%q is not a port", r.FormValue("port"))
	}
	return dialLoopback(r.Context(), uint16(port))
}

// dialLoopback connects to a port, by IPv4 and else by IPv6.
func dialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	var firstErr error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		if firstErr == nil {
			firstErr = err
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	var timeout net.Error
	switch {
	case errors.Is(firstErr, syscall.ECONNREFUSED):
		return nil, answer.Errorf(agentapi.CodePortClosed, "nothing listens on port %d in the sandbox", port)
	case errors.As(firstErr, &timeout) && timeout.Timeout():
		return nil, answer.Errorf(agentapi.CodePortClosed, "the server on port %d in the sandbox does not accept connections", port)
	default:
		return nil, firstErr
	}
}

// upload copies the request's body to the server and then closes that direction. A server that
// stops reading is not an error: it may still send an answer.
func upload(conn net.Conn, body io.Reader) error {
	buf := make([]byte, smallBuffer)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := conn.Write(buf[:n]); err != nil {
				return discardRest(body, buf)
			}
			buf = grown(buf, n)
		}
		if err == io.EOF {
			conn.(interface{ CloseWrite() error }).CloseWrite() // TCP and Unix connections have it
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// discardRest discards the data for a server that has stopped reading.
func discardRest(body io.Reader, buf []byte) error {
	for {
		if _, err := body.Read(buf); err != nil {
			if err == io.EOF {
				err = nil
			}
			return err
		}
	}
}

// download copies what the server sends into frames, and reports when the server closed its side.
func download(w io.Writer, flush func() error, conn net.Conn) error {
	buf := make([]byte, smallBuffer)
	for {
		n, err := conn.Read(buf[agentapi.FrameHeader:])
		if n > 0 {
			agentapi.PutFrameHeader(buf, agentapi.FrameStdout, n)
			if _, err := w.Write(buf[:agentapi.FrameHeader+n]); err != nil {
				return err
			}
			buf = grown(buf, agentapi.FrameHeader+n)
		}
		if err == io.EOF {
			agentapi.PutFrameHeader(buf, agentapi.FrameEOF, 0)
			if _, err := w.Write(buf[:agentapi.FrameHeader]); err != nil {
				return err
			}
			return flush()
		}
		if err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
}
