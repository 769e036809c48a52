package sshd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// loginTime bounds the login of a client; a person may have to find the token.
	loginTime = 2 * time.Minute
	// loginTries bounds the keys and passwords that a client may offer. Agents offer all keys they have.
	loginTries = 10
	// closeTime bounds the time that a client takes to read why its connection ends.
	closeTime = 3 * time.Second
	// acceptPause is the pause after an error of accept, such as too many open files.
	acceptPause = 100 * time.Millisecond
)

// Config has the settings of a [Server].
type Config struct {
	// MaxConnections is the maximum number of connections, and MaxPerUser of a user's; 0 is no limit.
	MaxConnections, MaxPerUser int
	// KeepAlive is the interval at which the server asks a client for a sign of life; a client that gives none
	// until the next time is gone. 0 is 30 s.
	KeepAlive time.Duration
}

// Logins checks who logs in. [auth.Authenticator] implements it.
type Logins interface {
	// Token returns the identity of an API token, see [auth.Authenticator.Token].
	Token(ctx context.Context, remote, token, ws string, p account.Permission) (auth.Identity, error)
	// StillPermits returns nil while the user has the permission, see [auth.Authenticator.StillPermits].
	StillPermits(ctx context.Context, user sandbox.UserID, token string, ws sandbox.WorkspaceID, p account.Permission) error
	// Changed returns a channel that is closed at the next change of permissions.
	Changed() <-chan struct{}
}

// Keys checks who logs in by a public key. [sshkey.Keys] implements it.
type Keys interface {
	// Find returns the record of a key that a client has, see [sshkey.Keys.Find]. Errors: NotFound.
	Find(ctx context.Context, public ssh.PublicKey) (account.SSHKey, error)
	// Login returns the identity that a key gives, see [sshkey.Keys.Login].
	Login(ctx context.Context, remote string, key account.SSHKey, ws string, p account.Permission) (auth.Identity, error)
	// StillPermits returns nil while the key gives the permission, see [sshkey.Keys.StillPermits].
	StillPermits(ctx context.Context, id string, ws sandbox.WorkspaceID, p account.Permission) error
	// Changed returns a channel that is closed at the next deletion of a key.
	Changed() <-chan struct{}
}

// Sandboxes finds sandboxes. [lifecycle.Service] implements it.
type Sandboxes interface {
	// Get returns the sandbox that ref, an id or a name, means to the caller. Errors: NotFound.
	Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error)
}

// Calls are the calls into sandboxes. [guest.Calls] implements it.
type Calls interface {
	// Exec starts a command, see [guest.Calls.Exec].
	Exec(ctx context.Context, c sandbox.Caller, ref string, cmd agentapi.Command) (*guest.Command, error)
	// Dial connects to a TCP port of a sandbox, see [guest.Calls.Dial].
	Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error)
}

// Deps are the dependencies of a [Server]; all but Others must be set.
type Deps struct {
	Logins    Logins
	Keys      Keys
	Sandboxes Sandboxes
	Calls     Calls
	Audit     *audit.Log
	Logger    *slog.Logger
	// Others serves the sandboxes of other servers; nil for a server that works on all sandboxes.
	Others Others
}

// Server serves SSH clients. It is safe for concurrent use.
type Server struct {
	cfg     Config
	deps    Deps
	hostKey ssh.Signer

	strangers, users, channels *counter

	ctx  context.Context // of all connections
	stop context.CancelCauseFunc
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool // guarded by mu; nothing is added to work any more
}

var errStops = sandbox.Errorf(sandbox.Unavailable, "the server stops; the sandbox keeps running")

// New returns a server with a host key.
func New(cfg Config, hostKey ssh.Signer, deps Deps) *Server {
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = 30 * time.Second
	}
	s := &Server{
		cfg: cfg, deps: deps, hostKey: hostKey,
		strangers: newCounter(strangersPerAddress, strangersInAll),
		users:     newCounter(cfg.MaxPerUser, cfg.MaxConnections),
		channels:  newCounter(channelsPerUser, channelsInAll),
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// Close ends all connections and their commands, and returns when they have ended. It may be called
// again.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(errStops)
	s.work.Wait()
}

// start runs do in the background until Close, which waits for it.
func (s *Server) start(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(do)
	return true
}

// Serve accepts connections until Close, and closes the listener.
func (s *Server) Serve(l net.Listener) error {
	defer context.AfterFunc(s.ctx, func() { _ = l.Close() })()
	defer l.Close()
	for {
		raw, err := l.Accept()
		switch {
		case s.ctx.Err() != nil:
			if err == nil {
				_ = raw.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.deps.Logger.Warn("accept an SSH connection", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-s.ctx.Done():
			}
			continue
		}
		_, group := audit.Client(raw.RemoteAddr().String())
		release := s.strangers.take(group)
		if release == nil || !s.start(func() { s.serve(raw, release) }) {
			_ = raw.Close()
			if release != nil {
				release()
			}
		}
	}
}

// serve serves a connection. It calls loggedIn after the login, or when there will be none.
func (s *Server) serve(raw net.Conn, loggedIn func()) {
	defer loggedIn()
	defer raw.Close()
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(errGone)
	_ = raw.SetDeadline(time.Now().Add(loginTime)) // a connection of TCP always has deadlines
	cut := context.AfterFunc(ctx, func() { _ = raw.Close() })
	in := &login{server: s, ctx: ctx, remote: raw.RemoteAddr().String()}
	conn, channels, requests, err := ssh.NewServerConn(raw, in.config(raw))
	if err != nil {
		in.abandon()
		in.failed()
		s.deps.Logger.Debug("SSH login", "address", in.remote, "error", err)
		return
	}
	cut()
	_ = raw.SetDeadline(time.Time{})
	loggedIn()
	// The end of ctx leaves time to tell the client why.
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Now().Add(closeTime)) })()
	c := &connection{server: s, raw: raw, conn: conn, login: in.of(conn)}
	if part, ok := c.elsewhere(ctx); ok {
		c.relay(ctx, cancel, part, channels, requests)
		return
	}
	c.serve(ctx, cancel, channels, requests)
}
