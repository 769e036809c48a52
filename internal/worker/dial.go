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
	"slices"
	"strings"
	"sync"
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

	mu   sync.Mutex
	cert *tls.Certificate // guarded by mu; nil before the first join

	atMu   sync.Mutex
	at     string               // guarded by atMu; the address that had the last connection
	past   bool                 // guarded by atMu; other addresses are tried before it
	among  int                  // guarded by atMu; the number of addresses
	silent map[string]time.Time // guarded by atMu; when no answer came from an address
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
	return &Dialer{addresses: addresses, id: worker.ID(), key: worker.key, token: t, log: log, silent: map[string]time.Time{}}, nil
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

// once makes a connection and serves it until it ends. If the server refuses the worker, once tries the next address. The next call tries another address
// first.
func (d *Dialer) once(ctx context.Context, serve func(ctx context.Context, conn net.Conn) error) error {
	cert, err := d.certificate(ctx)
	if err != nil {
		d.leaveAt()
		return err
	}
	var errs []error
	for _, address := range d.order(ctx) {
		conn, err := d.dialAddress(ctx, address, protocolConnect, *cert)
		if err == nil {
			d.stayAt(address)
			began := time.Now()
			err = serve(ctx, conn)
			d.leaveAt()
			if err == nil || ctx.Err() != nil || time.Since(began) > refuseLife {
				return err
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// refuseLife is longer than a connection lasts whose server refuses the worker.
const refuseLife = 5 * time.Second

// stayAt notes the address of a connection.
func (d *Dialer) stayAt(address string) {
	d.atMu.Lock()
	defer d.atMu.Unlock()
	d.at, d.past = address, false
}

// leaveAt has other addresses tried before the address of the last connection.
func (d *Dialer) leaveAt() {
	d.atMu.Lock()
	defer d.atMu.Unlock()
	d.past = true
}

const (
	// connectTime bounds the wait for the answer of one of several addresses: the machine or Pod of a server may have vanished.
	connectTime = 2 * time.Second
	// silentTime is the time for which such an address is not tried, while there are others.
	silentTime = 30 * time.Second
)

// connect makes a connection to an address.
func (d *Dialer) connect(ctx context.Context, address string) (net.Conn, error) {
	d.atMu.Lock()
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	if d.among > 1 {
		dialer.Timeout = connectTime
	}
	d.atMu.Unlock()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var late net.Error
	if err != nil && errors.As(err, &late) && late.Timeout() {
		d.atMu.Lock()
		d.silent[address] = time.Now()
		d.atMu.Unlock()
	}
	return conn, err
}

// order returns the addresses, with each address of a DNS name, in the order in which they are to be tried.
func (d *Dialer) order(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	var list []string
	for _, address := range d.addresses {
		host, port, _ := net.SplitHostPort(address) // NewDialer has done so
		found, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil { // the dial says why
			found = []string{host}
		}
		slices.Sort(found) // name servers change the order
		for _, host := range found {
			list = append(list, net.JoinHostPort(host, port))
		}
	}
	d.atMu.Lock()
	defer d.atMu.Unlock()
	d.among = len(list)
	if i := slices.Index(list, d.at); i >= 0 {
		if d.past {
			i++
		}
		list = slices.Concat(list[i:], list[:i])
	}
	for address, since := range d.silent {
		if time.Since(since) > silentTime {
			delete(d.silent, address)
		}
	}
	answering := slices.DeleteFunc(slices.Clone(list), func(address string) bool { return !d.silent[address].IsZero() })
	if len(answering) > 0 {
		return answering
	}
	return list
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
	var errs []error
	for _, address := range d.order(ctx) { // first the server that has the worker
		err := d.leaveBy(ctx, address, *cert)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaveBy is Leave for the server at an address.
func (d *Dialer) leaveBy(ctx context.Context, address string, cert tls.Certificate) error {
	conn, err := d.dialAddress(ctx, address, protocolLeave, cert)
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
	for _, address := range d.order(ctx) {
		conn, err := d.dialAddress(ctx, address, protocol, certs...)
		if err == nil {
			d.stayAt(address)
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (d *Dialer) dialAddress(ctx context.Context, address, protocol string, certs ...tls.Certificate) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	plain, err := d.connect(ctx, address)
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
