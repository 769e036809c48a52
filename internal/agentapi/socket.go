package agentapi

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// maxIdleSockets bounds the idle connections to a socket. Each reserves the memory of a stream.
	maxIdleSockets = 1
	// idleSocketTimeout bounds the idle time of a connection to a socket.
	idleSocketTimeout = time.Minute
	// maxSocketHeader bounds the header of an answer of a server on a socket.
	maxSocketHeader = 16 << 10
)

// RoundTripSocket sends a request to a server that speaks HTTP/1.1 on a Unix socket in the sandbox. A connection whose answer was
// read to its end serves later requests, because a new tunnel takes several times as long as a request. A request that can
// be repeated has the header Idempotency-Key without a value, which is not sent: it is sent again if its connection
// turns out to be closed. Errors: as of [Client.TunnelSocket] and [http.Transport.RoundTrip].
func (c *Client) RoundTripSocket(path string, req *http.Request) (*http.Response, error) {
	transport, ok := c.sockets.Load(path)
	if !ok {
		transport, _ = c.sockets.LoadOrStore(path, &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return c.TunnelSocket(ctx, path) },
			DisableCompression:     true,
			MaxIdleConnsPerHost:    maxIdleSockets,
			IdleConnTimeout:        idleSocketTimeout,
			MaxResponseHeaderBytes: maxSocketHeader,
		})
	}
	return transport.(*http.Transport).RoundTrip(req)
}
