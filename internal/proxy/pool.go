package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"

	"github.com/modbox/modbox/internal/sandbox"
)

// maxCertificates bounds the certificates of a server in bytes: the connection keeps them.
const maxCertificates = 32 << 10

var errCertificates = errors.New("the certificates of the server are too large")

// pool is the connections to one sandbox.
type pool struct {
	transport *http.Transport
	slots     chan struct{} // one for each request under way
}

func (p *Proxy) pool(id sandbox.ID) *pool {
	return p.pools.GetOrMake(id, func() *pool {
		dial := func(ctx context.Context, addr string) (net.Conn, error) { return p.dialer.Dial(ctx, id, portOf(addr)) }
		return &pool{
			slots: make(chan struct{}, p.cfg.MaxConnections),
			transport: &http.Transport{
				DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
					ctx, cancel := context.WithTimeout(ctx, dialTimeout)
					defer cancel()
					return dial(ctx, addr)
				},
				DialTLSContext:         dialTLS(p.cfg.MaxConnections, dial),
				DisableCompression:     true,
				IdleConnTimeout:        idleTimeout,
				MaxIdleConns:           p.cfg.MaxConnections,
				MaxIdleConnsPerHost:    maxIdlePerPort,
				ResponseHeaderTimeout:  p.cfg.ResponseTimeout,
				MaxResponseHeaderBytes: maxResponseHeader,
				ReadBufferSize:         copyBuffer,
				WriteBufferSize:        copyBuffer,
			},
		}
	})
}

// dialTLS returns a function that opens connections with TLS, at most most at once. The transport would let a
// dial go on when its request has ended: a server that is silent in the handshake would gather connections that
// no request under way stands for.
func dialTLS(most int, dial func(ctx context.Context, addr string) (net.Conn, error)) func(ctx context.Context, _, addr string) (net.Conn, error) {
	slots := make(chan struct{}, most)
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		defer context.AfterFunc(requestOf(ctx).ended, cancel)()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		raw, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		name, _, _ := net.SplitHostPort(addr) // made by rewrite
		c := tls.Client(raw, &tls.Config{
			ServerName: name,
			// The bytes go to the sandbox over its own connection, with TLS or without: its server's
			// certificate would say nothing more about where.
			InsecureSkipVerify:    true,
			VerifyPeerCertificate: checkCertificates,
		})
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake's error says more
			return nil, err
		}
		return c, nil
	}
}

func checkCertificates(certificates [][]byte, _ [][]*x509.Certificate) error {
	sum := 0
	for _, c := range certificates {
		sum += len(c)
	}
	if sum > maxCertificates {
		return errCertificates
	}
	return nil
}
