package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Dial implements [driver.Driver].
func (d *Driver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	b, err := d.lookup(id)
	if err != nil {
		return nil, err
	}
	if !b.started() {
		return nil, sandbox.Errorf(sandbox.Conflict, "box %s is not started", id)
	}
	if b.hasEnded() {
		return nil, b.endedError()
	}
	if port == driver.AgentPort {
		return b.dialAgent(ctx)
	}
	conn, err := b.agent.Tunnel(ctx, port)
	if err != nil {
		return nil, b.tunnelError(ctx, port, err)
	}
	return conn, nil
}

// tunnelError gives an error of the agent's client its code.
func (b *box) tunnelError(ctx context.Context, port uint16, err error) error {
	var refused *agentapi.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.hasEnded():
		return b.endedError()
	case errors.As(err, &refused) && refused.Code == agentapi.CodePortClosed:
		return sandbox.Errorf(sandbox.PortClosed, "nothing listens on port %d in the sandbox", port)
	default:
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent does not connect to port %d", port)
	}
}

// dialAgent connects to the agent by gVisor's port forwarding. That is safe only for the agent's
// own protocol: it loses bytes when megabytes of them are in transit, and an end of file in one
// direction ends the other. It waits while the box is being saved.
func (b *box) dialAgent(ctx context.Context) (net.Conn, error) {
	if err := b.dialing.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer b.dialing.Release(1)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, publicError(err, "dial the agent of box %s", b.id)
	}
	ours := os.NewFile(uintptr(fds[0]), "agent")
	defer ours.Close()
	args := boot.PortForwardOpts{ContainerID: string(b.id), Port: driver.AgentPort}
	err = call(ctx, b.answer, b.dir, boot.ContMgrPortForward, &args, nil, fds[1])
	unix.Close(fds[1])
	if err != nil {
		return nil, b.forwardError(ctx, err)
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, publicError(err, "dial the agent of box %s", b.id)
	}
	return b.track(conn)
}

func (b *box) forwardError(ctx context.Context, err error) error {
	var remote remoteError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.hasEnded():
		return b.endedError()
	case errors.As(err, &remote) && strings.Contains(string(remote), "refused"):
		return sandbox.Errorf(sandbox.PortClosed, "the sandbox's agent does not listen")
	case errors.Is(err, context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent does not accept a connection")
	case errors.As(err, &remote):
		return fmt.Errorf("dial the agent of box %s: %w", b.id, err)
	default: // the control socket is gone, so gVisor is ending
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox is ending")
	}
}

// track adds the connection to the box's table until it is closed.
func (b *box) track(conn net.Conn) (net.Conn, error) {
	c := &agentConn{Conn: conn, socket: conn.(*net.UnixConn), box: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		conn.Close()
		return nil, b.endedError()
	}
	b.conns[c] = struct{}{}
	return c, nil
}

// agentConn is a connection to the agent. Embedding the interface hides the socket's CloseWrite,
// which ends both directions, from callers.
type agentConn struct {
	net.Conn
	socket *net.UnixConn // the same as Conn
	box    *box
	once   sync.Once
}

// Close implements [net.Conn].
func (c *agentConn) Close() error {
	c.once.Do(func() {
		c.box.mu.Lock()
		delete(c.box.conns, c)
		c.box.mu.Unlock()
	})
	return c.Conn.Close()
}

// hungUp reports whether gVisor has closed its end, or ours is closed. It reads nothing, because
// data belongs to the user of the connection.
func (c *agentConn) hungUp() bool {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		gone = err == nil && n == 1 && poll[0].Revents&unix.POLLHUP != 0
	})
	return gone || err != nil
}
