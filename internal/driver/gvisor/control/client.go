package control

import (
	"context"
	"os"
	"time"

	sentry "gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
)

// How long gVisor may take to answer.
const (
	startRPC   = 30 * time.Second
	answerRPC  = 5 * time.Second
	measureRPC = 2 * time.Second
	freezeRPC  = 10 * time.Second
	saveRPC    = 15 * time.Minute // gigabytes, on a slow disk
	treeRPC    = 10 * time.Minute
)

// gVisor has no constants for these.
const (
	usageCollect = "Usage.Collect"
	usageReduce  = "Usage.Reduce"
)

// Client calls the gVisor of a box. It is safe for concurrent use and has nothing to close.
type Client struct {
	dir    string
	id     string
	answer time.Duration
}

// New returns the client of the box id whose directory is dir. Where gVisor's answer takes no time,
// it may be silent for answer, which is at most 5 seconds; 0 means those.
func New(dir, id string, answer time.Duration) Client {
	if answer <= 0 || answer > answerRPC {
		answer = answerRPC
	}
	return Client{dir: dir, id: id, answer: answer}
}

// GiveLoopback describes to gVisor the network that the box starts with. It must be called before
// [Client.Restore].
func (c Client) GiveLoopback(ctx context.Context) error {
	network := boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
	return c.call(ctx, startRPC, boot.ContMgrSetNetworkArgs, &network, nil)
}

// Start gives the box a loopback and starts PID 1.
func (c Client) Start(ctx context.Context) error {
	if err := c.GiveLoopback(ctx); err != nil {
		return err
	}
	return c.call(ctx, startRPC, boot.ContMgrRootContainerStart, &c.id, nil)
}

// Ping makes a call that gVisor answers at once, unless its process is stopped.
func (c Client) Ping(ctx context.Context) error {
	return c.call(ctx, c.answer, boot.ContMgrProcesses, &c.id, nil)
}

// Processes counts the processes inside the box.
func (c Client) Processes(ctx context.Context) (int64, error) {
	var list []*sentry.Process
	err := c.call(ctx, measureRPC, boot.ContMgrProcesses, &c.id, &list)
	return int64(len(list)), err
}

// MemoryFiles measures the files that gVisor keeps in the box's memory.
func (c Client) MemoryFiles(ctx context.Context) (int64, error) {
	var usage sentry.MemoryUsage
	err := c.call(ctx, measureRPC, usageCollect, &sentry.MemoryUsageOpts{Full: true}, &usage)
	return int64(usage.Tmpfs), err
}

// ReleaseMemory makes gVisor release memory that it does not use.
func (c Client) ReleaseMemory(ctx context.Context) error {
	return c.call(ctx, measureRPC, usageReduce, &sentry.UsageReduceOpts{}, nil)
}

// Pause stops the execution of the box. gVisor counts pauses and resumes, and ends when they do not
// match. So the call is not cancelled when ctx ends; it takes half a millisecond.
func (c Client) Pause(ctx context.Context) error {
	return c.call(context.WithoutCancel(ctx), freezeRPC, boot.ContMgrPause, nil, nil)
}

// Resume undoes [Client.Pause], and is not cancelled either.
func (c Client) Resume(ctx context.Context) error {
	return c.call(context.WithoutCancel(ctx), freezeRPC, boot.ContMgrResume, nil, nil)
}

// Forward makes gVisor connect the socket fd to a port of the box's loopback. Such a connection
// loses bytes when megabytes of them are in transit, and an end of file in one direction ends the
// other.
func (c Client) Forward(ctx context.Context, port uint16, fd int) error {
	args := boot.PortForwardOpts{ContainerID: c.id, Port: port}
	return c.call(ctx, c.answer, boot.ContMgrPortForward, &args, nil, fd)
}

// MountImage mounts an EROFS image at a path in the box. The mount does not survive a restore until the
// guest has mounted the type of file system of package lateimage there.
func (c Client) MountImage(ctx context.Context, image *os.File, at string) error {
	args := boot.MountArgs{ContainerID: c.id, Source: "none", Destination: at, FsType: "erofs"}
	return useFD(image, func(fd int) error {
		return c.call(ctx, c.answer, boot.ContMgrMount, &args, nil, fd)
	})
}

// Save writes the state of the box into files: its kernel, the index of its memory pages, and the
// pages. The box does not run meanwhile. It fails while a forwarded connection exists, see
// [IsConnected].
func (c Client) Save(ctx context.Context, files []*os.File) error {
	args := sentry.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(),
		HavePagesFile: true,
		Resume:        true,
	}
	return c.call(ctx, saveRPC, boot.ContMgrCheckpoint, &args, nil, numbers(files)...)
}

// IsConnected reports whether [Client.Save] failed because of a forwarded connection. gVisor closes
// its end of a connection some time after the other end was closed.
func IsConnected(err error) bool { return IsRemote(err, "encoding error") }

// Restore loads the files that [Client.Save] wrote into a box that was not started, and lets it run.
func (c Client) Restore(ctx context.Context, files []*os.File) error {
	args := boot.RestoreOpts{HavePagesFile: true}
	return c.call(ctx, saveRPC, boot.ContMgrRestore, &args, nil, numbers(files)...)
}

// WriteTree writes what the box has written into its root to a pipe, as a tar in which whiteouts are
// overlayfs's and holes are zeros.
func (c Client) WriteTree(ctx context.Context, pipe *os.File) error {
	args := sentry.TarRootfsUpperLayerOpts{ContainerID: c.id}
	return useFD(pipe, func(fd int) error {
		return c.call(ctx, treeRPC, boot.FsTarRootfsUpperLayer, &args, nil, fd)
	})
}

// Stacks returns the stacks of all goroutines of gVisor.
func (c Client) Stacks(ctx context.Context) (string, error) {
	var out string
	err := c.call(ctx, startRPC, boot.DebugStacks, nil, &out)
	return out, err
}

func numbers(files []*os.File) []int {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fds
}

// useFD calls fn with f's descriptor, and does not change f's mode.
func useFD(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}
