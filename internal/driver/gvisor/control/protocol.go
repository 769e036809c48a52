package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// socketName is the control socket's name in the box's directory.
const socketName = "ctl.sock"

// maxAnswer bounds gVisor's answers. A list of all processes of a box with the maximum number of
// processes is far smaller.
const maxAnswer = 16 << 20

// remoteError is an error that gVisor reported.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// IsRemote reports whether gVisor reported err, in words that contain text.
func IsRemote(err error, text string) bool {
	var remote remoteError
	return errors.As(err, &remote) && strings.Contains(string(remote), text)
}

// ErrNotAsked is in the chain when gVisor cannot have received the request.
var ErrNotAsked = errors.New("gVisor does not listen")

// HungUp reports whether err means that gVisor closed the connection.
func HungUp(err error) bool {
	for _, end := range []error{ErrNotAsked, io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// call calls method of gVisor, and passes it fds. It returns when the answer has arrived, when ctx
// ends, or after timeout.
func (c Client) call(ctx context.Context, timeout time.Duration, method string, arg, result any, fds ...int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := exchange(ctx, c.dir, method, arg, result, fds)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func exchange(ctx context.Context, dir, method string, arg, result any, fds []int) error {
	request, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return err
	}
	conn, err := connect(ctx, dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(request, rights, nil)
	if err == nil && n < len(request) {
		_, err = conn.Write(request[n:])
	}
	if err != nil {
		return err
	}
	var answer struct {
		Success bool            `json:"success"`
		Err     string          `json:"err"`
		Result  json.RawMessage `json:"result"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return err
	}
	if !answer.Success {
		return remoteError(answer.Err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

// connect opens the control socket. While gVisor's queue of callers is full, it tries again. It
// does not pass ctx to the dialer: that never waits for a Unix socket, but may find the deadline
// passed a moment before ctx has ended, and then returns an error that looks as if gVisor did not
// listen.
func connect(ctx context.Context, dir string) (*net.UnixConn, error) {
	d, name, err := shortName(dir, socketName)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Bind makes the socket in a box's directory that its gVisor will listen on.
func Bind(dir string) (*os.File, error) {
	d, name, err := shortName(dir, socketName)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return os.NewFile(uintptr(fd), socketName), nil
}

// shortName returns a short name of the control socket, through a descriptor of its directory and
// valid while that is open: the kernel limits socket addresses to 107 bytes.
func shortName(dir, socket string) (*os.File, string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return d, fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socket), nil
}
