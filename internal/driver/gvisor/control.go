package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// Files in a box's directory.
const (
	controlName = "ctl.sock"
	bootLogName = "boot.log"
	stateName   = "state.json"
)

// How long gVisor may take to answer. Each is far above what was ever measured;
// a guest can hold up some of its answers, for others at most.
const (
	startRPC   = 30 * time.Second
	forwardRPC = 5 * time.Second
	measureRPC = 2 * time.Second
)

// usageCollect has no constant in gVisor.
const usageCollect = "Usage.Collect"

// call asks gVisor of the box whose directory is dir. It returns when the
// answer is there, when ctx ends, and after timeout at the latest.
func call(ctx context.Context, timeout time.Duration, dir, method string, arg, result any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sock, err := connect(ctx, dir)
	if err != nil {
		return err
	}
	defer sock.Close()
	// gVisor's client knows no deadlines: a shut socket ends its call.
	stop := context.AfterFunc(ctx, func() { _ = sock.Shutdown() })
	defer stop()
	if err := urpc.NewClient(sock).Call(method, arg, result); err != nil {
		return fmt.Errorf("%s: %w", method, ended(ctx, err))
	}
	return nil
}

// connect opens the control socket. The path goes through a descriptor of the
// directory, because addresses of sockets are limited to 107 bytes.
func connect(ctx context.Context, dir string) (*unet.Socket, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// Connecting blocks while gVisor's queue is full; the time to send limits that.
	if deadline, ok := ctx.Deadline(); ok {
		left := unix.NsecToTimeval(max(time.Millisecond, time.Until(deadline)).Nanoseconds())
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &left)
	}
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), controlName)})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket: %w", ended(ctx, err))
	}
	sock, err := unet.NewSocket(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return sock, nil
}

// startGuest gives the box a loopback and starts PID 1.
func startGuest(ctx context.Context, dir, id string) error {
	network := boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
	if err := call(ctx, startRPC, dir, boot.ContMgrSetNetworkArgs, &network, nil); err != nil {
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
