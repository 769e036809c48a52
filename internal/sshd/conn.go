package sshd

import (
	"context"
	"iter"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/sandbox"
)

// connection is a connection that has logged in.
type connection struct {
	server *Server
	raw    net.Conn
	conn   *ssh.ServerConn
	login  *signedIn
}

// errGone means that the client is gone.
var errGone = context.Canceled

// serve serves the channels of the connection until it ends. cancel ends ctx, and with it the
// channels and the connection.
func (c *connection) serve(ctx context.Context, cancel context.CancelCauseFunc, offers <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	defer c.login.release()
	begun := time.Now()
	var background, channels sync.WaitGroup
	// Requests that belong to no channel are refused. Clients expect something of one kind only:
	// the forwarding of ports of the server.
	background.Go(func() { ssh.DiscardRequests(requests) })
	background.Go(func() { c.watch(ctx, cancel) })
	background.Go(func() { c.keepAlive(ctx, cancel) })
	places := newCounter(channelsPerConnection, 0)
	for offer := range c.offers(ctx, offers) {
		release := c.place(places)
		if release == nil {
			refuse(offer, ssh.ResourceShortage, tooMany("channels of SSH connections").Error())
			continue
		}
		channels.Go(func() {
			defer release()
			c.channel(ctx, offer)
		})
	}
	cancel(errGone)
	channels.Wait()
	_ = c.conn.Close() // closed already if the client is gone
	for range offers { // which end now
	}
	background.Wait()
	c.server.deps.Logger.Info("SSH connection ended", "user", c.login.User, "workspace", c.login.Workspace, "sandbox", c.login.ref,
		"address", c.login.remote, "client", sandbox.OneLine(c.login.program), "duration", time.Since(begun).Round(time.Millisecond).String())
}

// offers yields the channels that the client opens, until it is gone or ctx ends.
func (c *connection) offers(ctx context.Context, offers <-chan ssh.NewChannel) iter.Seq[ssh.NewChannel] {
	return func(yield func(ssh.NewChannel) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case offer, ok := <-offers:
				if !ok || !yield(offer) {
					return
				}
			}
		}
	}
}

// place takes a place for a channel on this connection, whose places are given, and among the
// user's. It returns nil when there is none.
func (c *connection) place(places *counter) (release func()) {
	here := places.take("")
	if here == nil {
		return nil
	}
	all := c.server.channels.take(string(c.login.User))
	if all == nil {
		here()
		return nil
	}
	return func() {
		all()
		here()
	}
}

// channel serves a channel to its end.
func (c *connection) channel(ctx context.Context, offered ssh.NewChannel) {
	switch offered.ChannelType() {
	case "session":
		c.session(ctx, offered)
	case "direct-tcpip":
		c.forward(ctx, offered)
	case "direct-streamlocal@openssh.com":
		c.forwardSocket(ctx, offered)
	default:
		refuse(offered, ssh.UnknownChannelType, "Modbox does not serve channels of type "+sandbox.OneLine(offered.ChannelType()))
	}
}

// refuse refuses a channel; an error means that the connection is gone.
func refuse(offered ssh.NewChannel, reason ssh.RejectionReason, message string) {
	_ = offered.Reject(reason, message)
}

// permitted returns nil while the login has its rights.
func (s *Server) permitted(ctx context.Context, in *signedIn) error {
	if in.key.ID != "" {
		return s.deps.Keys.StillPermits(ctx, in.key.ID, in.Workspace, needs)
	}
	return s.deps.Logins.StillPermits(ctx, in.User, in.TokenID, in.Workspace, needs)
}

// watch ends the connection when its login loses its rights.
func (c *connection) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	var expired <-chan time.Time
	if !c.login.Expires.IsZero() {
		timer := time.NewTimer(time.Until(c.login.Expires))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		changed, removed := c.server.deps.Logins.Changed(), c.server.deps.Keys.Changed() // before the check
		if err := c.server.permitted(ctx, c.login); err != nil && ctx.Err() == nil {
			if code := sandbox.CodeOf(err); code == sandbox.Unauthenticated || code == sandbox.Forbidden {
				cancel(err)
				return
			}
			c.server.deps.Logger.Error("check the rights of an SSH connection", "error", err)
		}
		select {
		case <-changed:
		case <-removed:
		case <-expired:
			cancel(sandbox.Errorf(sandbox.Unauthenticated, "the token or key has expired"))
			return
		case <-ctx.Done():
			return
		}
	}
}

// keepAlive ends the connection when its client does not answer.
func (c *connection) keepAlive(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(c.server.cfg.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		answer := make(chan error, 1)
		go func() { // ends with the connection at the latest
			_, _, err := c.conn.SendRequest("keepalive@openssh.com", true, nil)
			answer <- err
		}()
		timer := time.NewTimer(c.server.cfg.KeepAlive)
		select {
		case err := <-answer:
			if err != nil {
				cancel(errGone)
			}
		case <-timer.C:
			cancel(errGone)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
