package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

// handoverName is the name, in the box's directory, of the socket on which the agent takes connections.
const handoverName = "agent.sock"

// BindHandover makes the socket, in a box's directory, that its agent has as stdin. gVisor can only
// receive from it.
func BindHandover(dir string) (*os.File, error) {
	d, name, err := shortName(dir, handoverName)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	// Messages for a name reach the socket whichever server sends them; a pair of sockets would end with
	// the server that made it.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket of the agent: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err == nil {
		err = unix.Shutdown(fd, unix.SHUT_WR)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("socket of the agent: %w", err)
	}
	return os.NewFile(uintptr(fd), handoverName), nil
}

// HandOver gives the agent of the box the socket fd, as a connection that it serves. It does not wait for
// the agent, unless the agent has not yet taken some connections before. The box must have been started
// with the socket of [BindHandover].
func (c Client) HandOver(ctx context.Context, fd int) error {
	return c.send(ctx, agentapi.Connection, fd)
}

// HangUp is HandOver, but asks the agent to close every connection that was handed over before, and then fd. The agent of an
// earlier version of Modbox serves fd like any other connection.
func (c Client) HangUp(ctx context.Context, fd int) error {
	return c.send(ctx, agentapi.HangUp, fd)
}

// send sends a message of that kind, with the descriptor fd.
func (c Client) send(ctx context.Context, kind byte, fd int) error {
	d, name, err := shortName(c.dir, handoverName)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, c.answer)
	defer cancel()
	// Only a socket that is connected is notified when the agent's queue has capacity.
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		defer socket.Close()
		stop := context.AfterFunc(ctx, func() { _ = socket.SetWriteDeadline(time.Now()) })
		defer stop()
		err = sendConnection(socket, kind, fd)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: %w", ErrNotAsked, err)
	default:
		return fmt.Errorf("hand a connection over: %w", err)
	}
}

// sendConnection sends a message with the descriptor fd when the other socket has capacity.
func sendConnection(socket *net.UnixConn, kind byte, fd int) error {
	raw, err := socket.SyscallConn() // WriteMsgUnix refuses a connected socket for datagrams
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(to uintptr) bool {
		sent = unix.Sendmsg(int(to), []byte{kind}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sent, unix.EAGAIN)
	})
	if err != nil {
		return err
	}
	return sent
}

// HasHandover reports whether the box in a directory was started with the socket of [BindHandover].
func HasHandover(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, handoverName))
	return err == nil
}
