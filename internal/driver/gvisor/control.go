package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"
)

// Files in a box's directory.
const (
	controlName = "ctl.sock"
	bootLogName = "boot.log"
	stateName   = "state.json"
)

// How long gVisor may take to answer. Each is far above all measured times. A guest can delay some
// answers up to the limit.
const (
	startRPC   = 30 * time.Second
	forwardRPC = 5 * time.Second
	measureRPC = 2 * time.Second
	freezeRPC  = 10 * time.Second
	saveRPC    = 15 * time.Minute // gigabytes, on a slow disk
)

// usageCollect has no constant in gVisor.
const usageCollect = "Usage.Collect"

// maxAnswer bounds gVisor's answers. A list of all processes of a box with the maximum number of
// processes is far smaller.
const maxAnswer = 16 << 20

// remoteError is an error that gVisor reported.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// errNotAsked is in the chain when gVisor cannot have received the request.
var errNotAsked = errors.New("gVisor does not listen")

// hungUp reports whether err means that gVisor closed the connection.
func hungUp(err error) bool {
	for _, end := range []error{errNotAsked, io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// call calls method of the gVisor of the box whose directory is dir, and passes it fds, which the
// caller still owns. It returns when the answer has arrived, when ctx ends, or after timeout. An
// error that gVisor reports has a remoteError in its chain.
//
// call implements gVisor's protocol, which is JSON: gVisor's own client has no deadlines, and while
// it works it has descriptors open that another box started at that moment would inherit.
func call(ctx context.Context, timeout time.Duration, dir, method string, arg, result any, fds ...int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := exchange(ctx, dir, method, arg, result, fds); err != nil {
		return fmt.Errorf("%s: %w", method, ended(ctx, err))
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
		return fmt.Errorf("%w: %w", errNotAsked, err)
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
	d, name, err := shortName(dir)
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

// bindControl makes the socket that gVisor will listen on.
func bindControl(dir string) (*os.File, error) {
	d, name, err := shortName(dir)
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
	return os.NewFile(uintptr(fd), controlName), nil
}

// shortName returns a short name of the control socket, through a descriptor of its directory and
// valid while that is open: the kernel limits socket addresses to 107 bytes.
func shortName(dir string) (*os.File, string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return d, fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), controlName), nil
}

// giveLoopback describes to gVisor the network that the box starts with.
func giveLoopback(ctx context.Context, dir string) error {
	network := boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
	return call(ctx, startRPC, dir, boot.ContMgrSetNetworkArgs, &network, nil)
}

// startGuest gives the box a loopback and starts PID 1.
func startGuest(ctx context.Context, dir, id string) error {
	if err := giveLoopback(ctx, dir); err != nil {
		return err
	}
	return call(ctx, startRPC, dir, boot.ContMgrRootContainerStart, &id, nil)
}

// guestProcesses counts the processes inside the box.
func guestProcesses(ctx context.Context, dir, id string) (int64, error) {
	var list []*control.Process
	err := call(ctx, measureRPC, dir, boot.ContMgrProcesses, &id, &list)
	return int64(len(list)), err
}

// memoryFiles measures the files that gVisor keeps in the box's memory.
func memoryFiles(ctx context.Context, dir string) (int64, error) {
	var usage control.MemoryUsage
	err := call(ctx, measureRPC, dir, usageCollect, &control.MemoryUsageOpts{Full: true}, &usage)
	return int64(usage.Tmpfs), err
}
