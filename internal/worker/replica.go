package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// Protocols of connections of other servers of the control plane, which forward what they get.
const (
	Forwarded    = "modbox-forward/1" // requests of HTTP
	ForwardedSSH = "modbox-ssh/1"     // connections of SSH clients
)

// Dial connects to the listener of workers of another server with this authority, for a protocol that it accepts from servers.
// Errors: also if that server does not accept the protocol at this moment.
func (a *Authority) Dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	limitUnsent(plain)
	conn := tls.Client(plain, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, ServerName: controlName, RootCAs: a.pool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.own(nil) },
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, fmt.Errorf("handshake with the server at %s: %w", address, err)
	}
	return conn, nil
}

// FromServers returns a listener for connections of other servers with a protocol, which the listener of workers accepts from then on. It can be called
// once for a protocol.
func (l *Listener) FromServers(protocol string) net.Listener {
	s := &servers{Listener: l, protocol: protocol, conns: make(chan net.Conn), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = append(l.servers, s)
	return s
}

// servers is a listener for the connections of other servers.
type servers struct {
	*Listener
	protocol string
	conns    chan net.Conn
	close    sync.Once
	closed   chan struct{}
}

// Accept implements [net.Listener].
func (s *servers) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
	case <-s.ctx.Done():
	}
	return nil, net.ErrClosed
}

// Close implements [net.Listener]: it ends neither the listener of workers nor connections.
func (s *servers) Close() error {
	s.close.Do(func() {
		close(s.closed)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Listener.servers = slices.DeleteFunc(s.Listener.servers, func(o *servers) bool { return o == s })
	})
	return nil
}

// protocols returns the protocols that the listener accepts.
func (l *Listener) protocols() []string {
	list := []string{protocolJoin, protocolConnect, protocolLeave}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.servers {
		list = append(list, s.protocol)
	}
	return list
}

// ofServers reports whether connections with a protocol are of other servers.
func ofServers(protocol string) bool {
	return protocol != protocolJoin && protocol != protocolConnect && protocol != protocolLeave
}

// checkPeer returns an error if the certificate is not for the protocol: workers forward no requests, and servers run no sandboxes.
func checkPeer(state tls.ConnectionState) error {
	if server := state.PeerCertificates[0].Subject.CommonName == controlName; server != ofServers(state.NegotiatedProtocol) {
		return errors.New("handshake: the certificate is not for this protocol")
	}
	return nil
}

// hand gives a connection of another server to the listener for its protocol, or closes it.
func (l *Listener) hand(conn net.Conn, protocol string) {
	l.mu.Lock()
	i := slices.IndexFunc(l.servers, func(s *servers) bool { return s.protocol == protocol })
	var to *servers
	if i >= 0 {
		to = l.servers[i]
	}
	l.mu.Unlock()
	if to != nil {
		select {
		case to.conns <- conn:
			return
		case <-to.closed:
		case <-l.ctx.Done():
		}
	}
	_ = conn.Close()
}
