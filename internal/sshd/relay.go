package sshd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// ownerTime bounds the start of a connection to another server, beyond the wait for it.
const ownerTime = 10 * time.Second

// Others connects to other servers of the installation, which serve sandboxes that this server does not work on.
type Others interface {
	// Connect connects to the SSH server of the owner of a range of shards, for a client at an address. The owner gets login by the
	// method Vouched of the connection, and trusts it. Errors: Unavailable.
	Connect(ctx context.Context, part int, client net.Addr, login []byte) (net.Conn, error)
}

// vouched is a connection of another server, for a client that has logged in there.
type vouched interface {
	// Vouched returns the login.
	Vouched() []byte
}

// voucher is a login that another server has checked.
type voucher struct {
	Identity auth.Identity
	// KeyID is the ID of the SSH key of the login; "" for a login by token.
	KeyID   string
	Program string
}

// vouched accepts a login that another server has checked and recorded, while it has its rights.
func (l *login) vouched(meta ssh.ConnMetadata, text []byte) (*ssh.Permissions, error) {
	var v voucher
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("the login at another server: %w", err)
	}
	in := &signedIn{Identity: v.Identity, remote: l.remote, program: v.Program}
	in.key.ID = v.KeyID
	var err error
	if _, in.ref, err = target(meta.User()); err == nil {
		err = l.server.permitted(l.ctx, in)
	}
	if err != nil {
		return nil, l.refusal(err)
	}
	l.abandon()
	if in.release = l.server.users.take(string(in.User)); in.release == nil {
		return nil, l.refusal(tooMany("SSH connections"))
	}
	l.in = in
	return &ssh.Permissions{ExtraData: map[any]any{signedInKey{}: in}}, nil
}

// elsewhere returns the range of the sandbox that the login names, if another server works on it.
func (c *connection) elsewhere(ctx context.Context) (part int, ok bool) {
	if v, ok := c.raw.(vouched); ok && len(v.Vouched()) > 0 || c.server.deps.Others == nil {
		return 0, false
	}
	_, err := c.server.deps.Sandboxes.Get(ctx, c.login.caller(), c.login.ref)
	var e sandbox.Elsewhere
	return e.Range, errors.As(err, &e) && e.Range != sandbox.SomeRange
}

// relay has the owner of the sandbox serve the channels of the connection, until either side ends.
func (c *connection) relay(ctx context.Context, cancel context.CancelCauseFunc, part int, offers <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	defer c.login.release()
	var background, channels sync.WaitGroup
	background.Go(func() { ssh.DiscardRequests(requests) })
	background.Go(func() { c.keepAlive(ctx, cancel) })
	owner, err := c.owner(ctx, part)
	if err == nil {
		background.Go(func() {
			_ = owner.Wait() // its end, for whatever reason
			cancel(errGone)
		})
	}
	places := newCounter(channelsPerConnection, 0)
	for offer := range c.offers(ctx, offers) {
		release := c.place(places)
		switch {
		case release == nil:
			refuse(offer, ssh.ResourceShortage, tooMany("channels of SSH connections").Error())
			continue
		case err != nil:
			refuse(offer, ssh.ConnectionFailed, c.server.explain(err))
			release()
			continue
		}
		channels.Go(func() {
			defer release()
			relayChannel(offer, owner)
		})
	}
	cancel(errGone)
	if err == nil {
		_ = owner.Close() // ended already if the server has
	}
	channels.Wait()
	_ = c.conn.Close() // closed already if the client is gone
	for range offers { // which end now
	}
	background.Wait()
}

// owner logs in at the owner of the sandbox, for the client. Errors: Unavailable.
func (c *connection) owner(ctx context.Context, part int) (ssh.Conn, error) {
	text, err := json.Marshal(voucher{Identity: c.login.Identity, KeyID: c.login.key.ID, Program: c.login.program})
	if err != nil {
		return nil, err
	}
	raw, err := c.server.deps.Others.Connect(ctx, part, c.conn.RemoteAddr(), text)
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Now().Add(ownerTime)) // a connection of TCP always has deadlines
	owner, offers, requests, err := ssh.NewClientConn(raw, "", &ssh.ClientConfig{
		User: c.conn.User(), HostKeyCallback: ssh.FixedHostKey(c.server.hostKey.PublicKey()), // all servers have the key of the state directory
	})
	if err != nil {
		_ = raw.Close() // the error says why
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the server of the sandbox does not answer; try again")
	}
	_ = raw.SetDeadline(time.Time{})
	go ssh.DiscardRequests(requests) // ends with the connection, like the next
	go func() {
		for offer := range offers {
			refuse(offer, ssh.Prohibited, "a client opens the channels")
		}
	}()
	return owner, nil
}

// relayChannel copies a channel between the client and the owner of the sandbox, until it ends.
func relayChannel(offer ssh.NewChannel, owner ssh.Conn) {
	up, fromOwner, err := owner.OpenChannel(offer.ChannelType(), offer.ExtraData())
	if err != nil {
		reason := &ssh.OpenChannelError{Reason: ssh.ConnectionFailed, Message: "the server of the sandbox does not answer; try again"}
		_ = errors.As(err, &reason)
		refuse(offer, reason.Reason, reason.Message)
		return
	}
	down, fromClient, err := offer.Accept()
	if err != nil { // the client is gone
		_ = up.Close()
		ssh.DiscardRequests(fromOwner)
		return
	}
	var input, output, answers sync.WaitGroup
	input.Go(func() {
		_, _ = io.Copy(up, down) // either side is gone after an error
		_ = up.CloseWrite()
	})
	input.Go(func() {
		relayRequests(up, fromClient)
		_ = up.Close() // the client has closed it
	})
	output.Go(func() { _, _ = io.Copy(down, up) })
	output.Go(func() { _, _ = io.Copy(down.Stderr(), up.Stderr()) })
	answers.Go(func() { relayRequests(down, fromOwner) })
	output.Wait()
	_ = down.CloseWrite()
	answers.Wait() // with the exit status
	_ = down.Close()
	input.Wait()
}

// relayRequests sends the requests of a channel on, with their replies back, until the channel ends.
func relayRequests(to ssh.Channel, from <-chan *ssh.Request) {
	for r := range from {
		ok, err := to.SendRequest(r.Type, r.WantReply, r.Payload)
		if r.WantReply {
			_ = r.Reply(ok && err == nil, nil) // the other side is gone after an error
		}
	}
}
