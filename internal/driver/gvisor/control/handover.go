package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	d, name, err := shortName(c.dir, handoverName)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	defer d.Close()
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket for the agent: %w", err)
	}
	defer unix.Close(socket)
	ctx, cancel := context.WithTimeout(ctx, c.answer)
	defer cancel()
	for {
		err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fd), &unix.SockaddrUnix{Name: name}, unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
			return fmt.Errorf("%w: %w", ErrNotAsked, err)
		case !errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("hand a connection over: %w", err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
