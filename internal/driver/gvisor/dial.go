package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/sandbox"
)

// Dial implements [driver.Driver].
func (d *Driver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lookup(id)
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

// socketBuffer is how many bytes may be in transit on a connection.
const socketBuffer = 512 << 10

// dialAgent connects to the agent. It waits while the box is being saved. The agent of a box of an earlier
// version of Modbox is reached by gVisor's port forwarding only. That is safe only for the agent's own
// protocol: it loses bytes when a megabyte of them is in transit, and an end of file in one direction ends
// the other.
func (b *box) dialAgent(ctx context.Context) (net.Conn, error) {
	if err := b.conns.dialing.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer b.conns.dialing.Release(1)
	made, err := b.conns.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer made()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, publicError(err, "dial the agent of box %s", b.id)
	}
	ours := os.NewFile(uintptr(fds[0]), "agent")
	defer ours.Close()
	for _, fd := range fds {
		// More in transit saves system calls. The kernel may allow less.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
	}
	if b.handover {
		err = b.gvisor.HandOver(ctx, fds[1])
	} else {
		err = b.gvisor.Forward(ctx, driver.AgentPort, fds[1])
	}
	unix.Close(fds[1])
	if err != nil {
		return nil, b.forwardError(ctx, err)
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, publicError(err, "dial the agent of box %s", b.id)
	}
	if conn = b.conns.track(conn, b.handover); conn == nil {
		return nil, b.endedError()
	}
	return conn, nil
}

func (b *box) forwardError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.hasEnded():
		return b.endedError()
	case control.IsRemote(err, "refused"):
		return sandbox.Errorf(sandbox.PortClosed, "the sandbox's agent does not listen")
	case errors.Is(err, context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.AgentUnreachable, err, "the sandbox's agent does not accept a connection")
	case control.IsRemote(err, ""):
		return fmt.Errorf("dial the agent of box %s: %w", b.id, err)
	case b.handover && !errors.Is(err, control.ErrNotAsked):
		return publicError(err, "dial the agent of box %s", b.id)
	default: // the control socket is gone, so gVisor is ending
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox is ending")
	}
}
