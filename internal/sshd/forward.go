package sshd

import (
	"context"
	"io"
	"net"
	"net/netip"

	"golang.org/x/crypto/ssh"
)

// directTCP is the payload of a channel of type direct-tcpip (RFC 4254, 7.2).
type directTCP struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}

// forward connects a channel with a port of the sandbox.
func (c *connection) forward(ctx context.Context, offered ssh.NewChannel) {
	var to directTCP
	if err := ssh.Unmarshal(offered.ExtraData(), &to); err != nil {
		refuse(offered, ssh.ConnectionFailed, "the request cannot be read")
		return
	}
	if !isLoopback(to.Host) || to.Port == 0 || to.Port > 1<<16-1 {
		refuse(offered, ssh.Prohibited, "only ports of the sandbox itself can be forwarded, as localhost:PORT")
		return
	}
	inside, err := c.dial(ctx, uint16(to.Port))
	if err != nil {
		refuse(offered, ssh.ConnectionFailed, c.server.explain(err))
		return
	}
	defer inside.Close()
	channel, requests, err := offered.Accept()
	if err != nil {
		return // the connection is gone
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests) // ends with the channel
	defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, err := io.Copy(inside, channel)
		closeWrite(inside, err)
	}()
	_, err = io.Copy(channel, inside)
	if err == nil && ctx.Err() == nil {
		_ = channel.CloseWrite() // fails only with the connection
		<-copied
		return
	}
	_ = channel.Close()
	_ = inside.Close()
	<-copied
}

// dial connects to a port of the sandbox.
func (c *connection) dial(ctx context.Context, port uint16) (net.Conn, error) {
	if err := c.server.permitted(ctx, c.login); err != nil {
		return nil, err
	}
	sb, err := c.server.deps.Sandboxes.Get(ctx, c.login.caller(), c.login.ref)
	if err != nil {
		return nil, err
	}
	return c.server.deps.Calls.Dial(ctx, sb.ID, port)
}

// closeWrite ends the direction to the sandbox after it was copied with an error, or nil.
func closeWrite(conn net.Conn, err error) {
	half, ok := conn.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = conn.Close()
	}
}

// isLoopback reports whether a host that a client names is the sandbox itself.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
