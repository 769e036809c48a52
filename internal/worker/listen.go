package worker

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Protocols of connections, by ALPN.
const (
	protocolJoin    = "modbox-join/1"
	protocolConnect = "modbox-worker/1"
	protocolLeave   = "modbox-leave/1"
)

const (
	// greetTimeout bounds the handshake of a connection, and a join.
	greetTimeout = 10 * time.Second
	// maxGreets bounds the connections that have not proved yet who they are.
	maxGreets = 64
	// maxJoin bounds the messages of a join in bytes.
	maxJoin = 16 << 10
)

// join is a worker's request for a certificate.
type join struct {
	Secret string
	// Worker is its id.
	Worker string
	// Request is in the form of PKCS #10.
	Request []byte
}

// joined is the answer.
type joined struct {
	Certificate []byte `json:",omitempty"`
	Error       string `json:",omitempty"`
}

// left is the answer to a worker that leaves.
type left struct {
	Error string `json:",omitempty"`
}

// ErrElsewhere is the reason why a server refuses a worker of another server, when several are active at the same time. The worker tries the next address.
var ErrElsewhere = sandbox.Errorf(sandbox.Unavailable, "the worker belongs to another server; it tries the next address")

// Uses are the uses of the connections of workers.
type Uses struct {
	// Check returns the reason why a worker must not be served; nil for none.
	Check func(Identity) error
	// Attach uses the connection of a worker until it ends.
	Attach func(ctx context.Context, worker Identity, conn net.Conn) error
	// Leave takes the sandboxes of a worker elsewhere, which is being ended, and returns when it has done what it can. ctx ends when
	// the worker does not wait any more.
	Leave func(ctx context.Context, worker Identity) error
}

// Listener accepts the connections of workers.
type Listener struct {
	net.Listener
	authority *Authority
	uses      Uses
	log       *slog.Logger
	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup
	greets    chan struct{}

	mu      sync.Mutex
	servers []*servers // guarded by mu
}

// Listen serves workers on l until Close: it gives a certificate to a worker that has the token, and uses the connection of a worker
// that has a certificate. Neither happens to a worker for which Check returns an error.
func Listen(l net.Listener, a *Authority, uses Uses, log *slog.Logger) *Listener {
	w := &Listener{Listener: l, authority: a, uses: uses, log: log, greets: make(chan struct{}, maxGreets)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.work.Go(w.accept)
	return w
}

// Close ends the listener and all connections of workers.
func (l *Listener) Close() error {
	l.cancel()
	err := l.Listener.Close()
	l.work.Wait()
	return err
}

func (l *Listener) accept() {
	for {
		conn, err := l.Accept()
		switch {
		case l.ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			l.log.Error("cannot accept a worker", "error", err)
			select {
			case <-time.After(time.Second): // such as for open files
			case <-l.ctx.Done():
			}
			continue
		}
		select {
		case l.greets <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		l.work.Go(func() {
			if err := l.serve(conn); err != nil && l.ctx.Err() == nil {
				level := slog.LevelWarn
				if errors.Is(err, ErrElsewhere) { // as expected
					level = slog.LevelDebug
				}
				l.log.Log(l.ctx, level, "connection of a worker", "from", conn.RemoteAddr().String(), "error", err)
			}
		})
	}
}

// serve greets a connection and uses it.
func (l *Listener) serve(conn net.Conn) error {
	handed := false
	defer func() {
		if !handed {
			_ = conn.Close()
		}
	}()
	limitUnsent(conn)
	secure, err := l.greet(conn)
	<-l.greets
	if err != nil || secure == nil {
		return err
	}
	if protocol := secure.ConnectionState().NegotiatedProtocol; ofServers(protocol) {
		handed = true
		l.hand(secure, protocol)
		return nil
	}
	leaf := secure.ConnectionState().PeerCertificates[0]
	peer := identity(leaf.Subject.CommonName, leaf.PublicKey)
	if err := l.uses.Check(peer); err != nil {
		return err
	}
	if secure.ConnectionState().NegotiatedProtocol == protocolLeave {
		return l.leave(secure, peer)
	}
	return l.uses.Attach(l.ctx, peer, secure)
}

// leave answers a worker that leaves, when its sandboxes are elsewhere.
func (l *Listener) leave(conn *tls.Conn, worker Identity) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	go func() { // the worker sends nothing, so this is its end, or the end of the answer
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	var answer left
	if err := l.uses.Leave(ctx, worker); err != nil {
		answer.Error = sandbox.Explain("the server cannot take the sandboxes elsewhere", err)
	}
	_ = conn.SetDeadline(time.Now().Add(greetTimeout)) // the worker may not have waited
	if err := json.NewEncoder(conn).Encode(answer); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return conn.CloseWrite()
}

// greet performs the handshake, and serves a join. It returns a connection whose worker has a certificate.
func (l *Listener) greet(conn net.Conn) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, greetTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	secure := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: l.protocols(),
		GetCertificate: l.authority.own, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: l.authority.pool(),
		SessionTicketsDisabled: true, // a resumed session would skip the check of an expired certificate
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	state := secure.ConnectionState()
	switch {
	case state.NegotiatedProtocol == protocolJoin:
		return nil, l.join(secure)
	case state.NegotiatedProtocol == "":
		return nil, errors.New("handshake: the client speaks another protocol")
	case len(state.PeerCertificates) == 0:
		return nil, errors.New("handshake: the client has no certificate")
	}
	return secure, checkPeer(state)
}

// join answers a request for a certificate.
func (l *Listener) join(conn *tls.Conn) error {
	var asked join
	if err := json.NewDecoder(io.LimitReader(conn, maxJoin)).Decode(&asked); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	var answer joined
	var refused error
	if answer.Certificate, refused = l.authority.issue(asked, l.uses.Check); refused != nil {
		answer.Error = sandbox.Explain("the server cannot give a certificate", refused)
	}
	err := json.NewEncoder(conn).Encode(answer)
	if err == nil {
		err = conn.CloseWrite()
	}
	if refused != nil {
		return fmt.Errorf("join: %w", refused)
	}
	return err
}
