package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"

	"golang.org/x/crypto/ssh"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/api/sshaccess"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/sshd"
	"github.com/modbox/modbox/internal/worker"
)

// sshListener is the listener for SSH clients and the server's host key. Its zero value is no SSH.
type sshListener struct {
	net.Listener
	hostKey ssh.Signer
	server  *sshd.Server
}

// listenSSH takes the address for SSH clients, if there is one, or the listener of a standby that has become active.
func listenSSH(ctx context.Context, cfg config.Config, d *disk, m *meanwhile, cu *cleanup.Cleanup) (*sshListener, error) {
	s := &sshListener{}
	if cfg.SSH.Listen == "" {
		return s, nil
	}
	var err error
	if s.hostKey, err = withSpace(d, func() (ssh.Signer, error) { return sshd.HostKey(cfg.StateDir) }); err != nil {
		return nil, err
	}
	if m != nil && m.ssh != nil {
		s.Listener = m.ssh
		return s, nil
	}
	if s.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.SSH.Listen); err != nil {
		return nil, fmt.Errorf("ssh.listen: %w", err)
	}
	cu.Add(func() { _ = s.Listener.Close() }) // closed already when it was served
	return s, nil
}

// shown returns how clients reach the SSH server, for the API.
func (s *sshListener) shown(cfg config.Config, publicURL string) sshaccess.Server {
	if s.Listener == nil {
		return sshaccess.Server{}
	}
	cfg.PublicURL = publicURL
	address := sshAddress(cfg, s.Addr())
	address.HostKeys = []ssh.PublicKey{s.hostKey.PublicKey()}
	return address
}

// open makes the server, which serves nothing before [sshListener.serve].
func (s *sshListener) open(cfg config.Config, p *parts, log *slog.Logger, cu *cleanup.Cleanup) {
	if s.Listener == nil {
		return
	}
	deps := p.SSH()
	if p.others != nil {
		deps.Others = &shellsElsewhere{p.others, dialServers(cfg, worker.ForwardedSSH)}
	}
	s.server = sshd.New(sshConfig(cfg), s.hostKey, deps)
	cu.Add(s.server.Close)
	log.Info("listening for SSH", "address", s.Addr().String(), "host_key", ssh.FingerprintSHA256(s.hostKey.PublicKey()))
}

// shellsElsewhere connects to the SSH servers of other active servers.
type shellsElsewhere struct {
	others *forward.Forwarder
	dial   func(ctx context.Context, address string) (net.Conn, error)
}

// Connect implements [sshd.Others].
func (e *shellsElsewhere) Connect(ctx context.Context, part int, client net.Addr, login []byte) (net.Conn, error) {
	return e.others.Open(ctx, part, client, login, e.dial)
}

// serve serves SSH clients until close. It sends its error, which ends the server.
func (s *sshListener) serve(failed chan<- error) {
	if s.server == nil {
		return
	}
	go func() {
		if err := s.server.Serve(s.Listener); err != nil {
			failed <- fmt.Errorf("serve SSH on %s: %w", s.Addr(), err)
		}
	}()
}

// serveForwarded serves the SSH clients of standbys until close. It sends its error, which ends the server.
func (s *sshListener) serveForwarded(l *worker.Listener, failed chan<- error) {
	if s.server == nil {
		return
	}
	go func() {
		if err := s.server.Serve(forward.AcceptConns(l.FromServers(worker.ForwardedSSH))); err != nil && !errors.Is(err, net.ErrClosed) {
			failed <- fmt.Errorf("serve forwarded SSH: %w", err)
		}
	}()
}

// forwardSSH passes SSH clients of a standby on to the active server, until second is closed.
func (m *meanwhile) forwardSSH(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) (err error) {
	if cfg.SSH.Listen == "" {
		return nil
	}
	if m.ssh, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.SSH.Listen); err != nil {
		return fmt.Errorf("ssh.listen: %w", err)
	}
	cu.Add(func() { _ = m.ssh.Close() }) // closed already when it was served
	if m.secondSSH, err = secondListener(m.ssh); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.follower.forwarder.ServeConns(m.secondSSH, dialServers(cfg, worker.ForwardedSSH)); !errors.Is(err, net.ErrClosed) {
			log.Error("SSH clients are not served until the server is active", "error", err)
		}
	}()
	cu.Add(func() {
		_ = m.secondSSH.Close() // closed already when the server became active
		<-ended
	})
	return nil
}

// end ends the connections of SSH clients.
func (s *sshListener) end() {
	if s.server != nil {
		s.server.Close()
	}
}

func sshConfig(cfg config.Config) sshd.Config {
	return sshd.Config{MaxConnections: cfg.SSH.MaxConnections, MaxPerUser: cfg.SSH.MaxPerUser}
}

// sshAddress returns the address for clients of a server that listens on an address.
func sshAddress(cfg config.Config, listening net.Addr) sshaccess.Server {
	s := sshaccess.Server{Enabled: true}
	if u, err := url.Parse(cfg.PublicURL); err == nil {
		s.Host = u.Hostname()
	}
	if tcp, ok := listening.(*net.TCPAddr); ok {
		s.Port = tcp.Port
	}
	if host, port, err := net.SplitHostPort(cfg.SSH.PublicAddress); err == nil {
		s.Host = host
		s.Port, _ = strconv.Atoi(port) // checked with the settings
	}
	return s
}
