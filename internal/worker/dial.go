package worker

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/retry"
)

// leastLife is the remaining life below which a worker gets another certificate.
const leastLife = 10 * time.Minute

// keepAlive finds out that the other machine is gone while nothing is sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// unsent bounds the bytes that the kernel buffers for a connection and has not sent. A ping after a large transfer waits only until
// these bytes are sent.
const unsent = 256 << 10

// limitUnsent sets the limit [unsent] for a connection.
func limitUnsent(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // without it, only slow connections suffer
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		})
	}
}

// Dialer connects a worker to its control plane.
type Dialer struct {
	addresses []string
	id        string
	key       *ecdsa.PrivateKey
	token     token
	log       *slog.Logger

	at   atomic.Int64 // the address to try first, modulo their number
	mu   sync.Mutex
	cert *tls.Certificate // guarded by mu; nil before the first join
}

// NewDialer returns the dialer of a worker for the control plane at one of the addresses, each a host with a port. tokenText is the
// content of the control plane's token file.
func NewDialer(addresses []string, worker *State, tokenText string, log *slog.Logger) (*Dialer, error) {
	if len(addresses) == 0 {
		return nil, errors.New("the worker needs an address of the server")
	}
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("the address of the server %q is not HOST:PORT", address)
		}
	}
	t, err := parseToken(tokenText)
	if err != nil {
		return nil, err
	}
	return &Dialer{addresses: addresses, id: worker.ID(), key: worker.key, token: t, log: log}, nil
}

// Run connects to the control plane, again whenever a connection has ended, and calls serve with each
// connection, until ctx ends.
func (d *Dialer) Run(ctx context.Context, serve func(ctx context.Context, conn net.Conn) error) {
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		began := time.Now()
		err := d.once(ctx, serve)
		if time.Since(began) > time.Minute {
			err = backoff.RetryAfter(0) // it was used for a while
		}
		return struct{}{}, err
	}, retry.Pauses(100*time.Millisecond, 5*time.Second), retry.Forever(), backoff.WithNotify(func(err error, wait time.Duration) {
		if ctx.Err() == nil {
			d.log.Warn("not connected to the server, trying again", "server", strings.Join(d.addresses, ","), "error", err, "wait", wait)
		}
	}))
}

// once makes a connection and serves it until it ends. The next call tries another address first: a server that the worker refuses
// may go on listening.
func (d *Dialer) once(ctx context.Context, serve func(ctx context.Context, conn net.Conn) error) error {
	defer d.at.Add(1)
	cert, err := d.certificate(ctx)
	if err != nil {
		return err
	}
	conn, err := d.dial(ctx, protocolConnect, *cert)
	if err != nil {
		return err
	}
	return serve(ctx, conn)
}

// certificate returns the certificate of the worker, after a join if it has none or an old one.
func (d *Dialer) certificate(ctx context.Context) (*tls.Certificate, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cert == nil || time.Until(d.cert.Leaf.NotAfter) < leastLife {
		if err := d.join(ctx); err != nil {
			return nil, fmt.Errorf("join: %w", err)
		}
	}
	return d.cert, nil
}

// Leave asks the control plane to take the sandboxes of the worker elsewhere, because the worker is being ended, and returns when the control
// plane has done what it can. Until then the worker must serve its connection.
func (d *Dialer) Leave(ctx context.Context) error {
	cert, err := d.certificate(ctx)
	if err != nil {
		return err
	}
	conn, err := d.dial(ctx, protocolLeave, *cert)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	var answer left
	if err := json.NewDecoder(io.LimitReader(conn, maxJoin)).Decode(&answer); err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("read the answer: %w", err))
	}
	if answer.Error != "" {
		return errors.New(strings.TrimSpace(answer.Error))
	}
	return nil
}

// dial makes a connection to the control plane at the first address that has it, which proves that it has the authority of the token.
func (d *Dialer) dial(ctx context.Context, protocol string, certs ...tls.Certificate) (*tls.Conn, error) {
	var errs []error
	for range d.addresses {
		conn, err := d.dialAddress(ctx, d.addresses[int(d.at.Load())%len(d.addresses)], protocol, certs...)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		d.at.Add(1)
	}
	return nil, errors.Join(errs...)
}

func (d *Dialer) dialAddress(ctx context.Context, address, protocol string, certs ...tls.Certificate) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	limitUnsent(plain)
	conn := tls.Client(plain, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, Certificates: certs, ServerName: controlName,
		InsecureSkipVerify: true, VerifyConnection: d.verify, // by the authority of the token, whatever the system trusts
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return conn, nil
}

// verify checks the certificate of a control plane.
func (d *Dialer) verify(state tls.ConnectionState) error {
	for _, c := range state.PeerCertificates[1:] {
		if digest(c.Raw) != d.token.authority {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(c)
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: controlName})
		return err
	}
	return errors.New("the token is not of this server")
}

// join gets a certificate.
//
// Preconditions: d.mu is held.
func (d *Dialer) join(ctx context.Context) error {
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, d.key)
	if err != nil {
		return err
	}
	conn, err := d.dial(ctx, protocolJoin)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(greetTimeout))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if err := json.NewEncoder(conn).Encode(join{Secret: d.token.secret, Worker: d.id, Request: request}); err != nil {
		return err
	}
	var answer joined
	if err := json.NewDecoder(io.LimitReader(conn, maxJoin)).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer.Error != "" {
		return fmt.Errorf("the server refuses: %s", strings.TrimSpace(answer.Error))
	}
	leaf, err := x509.ParseCertificate(answer.Certificate)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	d.cert = &tls.Certificate{Certificate: [][]byte{answer.Certificate}, PrivateKey: d.key, Leaf: leaf}
	return nil
}
