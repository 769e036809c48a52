package gvisor

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/sandbox"
)

// box is a box that the driver knows, from the moment its ID is claimed.
type box struct {
	id    sandbox.ID
	dir   string
	group *cgroup.Group // nil without control groups
	host  *host
	// gvisor calls the box's gVisor; agent is for tunnels and dials when first used.
	gvisor control.Client
	agent  *agentapi.Client
	conns  connections // to the agent

	// ready is closed when the box has been made or recovered completely. done is closed when that
	// has succeeded or failed. abort cancels the making.
	ready, done chan struct{}
	abort       context.CancelCauseFunc

	// Set before ready is closed and not changed afterwards.
	proc      *process.Process
	stderr    *os.File // the agent's; nil if another server has made the box
	resources sandbox.Resources
	layout    layer.Layout
	handover  bool  // see [state]
	kills     int64 // processes of the container that the kernel had killed before

	// ended is closed when the process has ended; exit is set before.
	ended chan struct{}
	exit  driver.Exit

	// order is a lock held by Start, Destroy, Checkpoint, Plug and others, which exclude each
	// other.
	order chan struct{}

	mu        sync.Mutex
	state     state // guarded by mu
	destroyed bool  // guarded by mu; Destroy has begun or ended it
	saved     bool  // guarded by mu; Checkpoint has begun or ended it
	raises    int   // guarded by mu; how often the memory limit was raised
	starved   bool  // guarded by mu; the driver has ended it because the memory of the container was used up
}

// newBox returns a box that has only an ID.
func (h *host) newBox(id sandbox.ID) *box {
	b := &box{
		id: id, dir: h.paths.box(id), group: h.group(id), host: h,
		gvisor: control.New(h.paths.box(id), string(id), h.answer),
		conns:  newConnections(),
		ready:  make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{}),
		abort: func(error) {},
		order: make(chan struct{}, 1),
	}
	b.agent = h.tunnels.NewClient(b.dialAgent)
	return b
}

// adopt completes b with its process p.
func (b *box) adopt(p *process.Process, s state) {
	b.proc, b.resources, b.layout, b.handover, b.state = p, s.Resources, s.Layout, s.Handover, s
	b.kills = b.host.container.Kills()
	b.host.watchers.Go(b.watch)
	close(b.ready)
}

// watch records the end of the box's process.
func (b *box) watch() {
	if err := b.proc.Wait(); err != nil {
		return // the driver was closed
	}
	ws, known := b.proc.Reap()
	b.exit = b.explain(ws, known)
	close(b.ended)
	b.disconnect()
	b.proc.Close()
	_ = b.stderr.Close() // it may be nil
}

// explain returns how the box ended. If guest processes of a box were killed for lack of memory
// before, and the box is killed for another reason now, the cause looks like lack of memory also;
// the counter does not say which process was killed.
func (b *box) explain(ws unix.WaitStatus, known bool) driver.Exit {
	b.mu.Lock()
	destroyed, saved, starved := b.destroyed, b.saved, b.starved
	b.mu.Unlock()
	if saved {
		return driver.Exit{Cause: sandbox.CauseDestroyed, Detail: "the sandbox was saved and stopped"}
	}
	if destroyed {
		return driver.Exit{Cause: sandbox.CauseDestroyed, Detail: "the sandbox was destroyed"}
	}
	killed := !known || ws.Signaled() && ws.Signal() == unix.SIGKILL || ws.Exited() && ws.ExitStatus() == 128+int(unix.SIGKILL)
	if killed && b.group != nil {
		if u, err := b.group.Usage(); err == nil && u.OOMKills > 0 {
			return driver.Exit{Cause: sandbox.CauseOOM, Detail: fmt.Sprintf("the sandbox used more than its %d MiB of memory", b.resources.MemoryBytes>>20)}
		}
	}
	if c := b.host.container; killed && b.group == nil && (starved || c.Kills() > b.kills) {
		return driver.Exit{Cause: sandbox.CauseOOM, Detail: fmt.Sprintf("the sandbox used up the %d MiB of memory of its container", c.Limit()>>20)}
	}
	// gVisor ends with the status of the guest's first process. Go programs that crash, including
	// gVisor and the agent, end with status 2. The status of a process that another server started
	// is unknown.
	lost := faulted(ws, known) || ws.Signaled()
	exit := driver.Exit{Cause: sandbox.CauseExited, Detail: "the sandbox ended by itself", Fault: faulted(ws, known), Lost: lost}
	switch {
	case known && ws.Signaled():
		exit.Detail = fmt.Sprintf("the sandbox's process was ended by signal %d", ws.Signal())
	case known && ws.Exited():
		exit.Detail = fmt.Sprintf("the sandbox's first process ended with status %d", ws.ExitStatus())
	}
	if exit.Fault && known {
		// Only the operator can do something about it. The file goes with the box.
		b.host.logger.Warn("a box failed", "box", b.id, "reason", exit.Detail, "gvisor", launch.BootLog(b.dir), "agent", launch.Written(b.stderr))
	}
	return exit
}

// faulted reports whether the box's process failed, or may have: it crashed, which ends a Go
// program with goFault or a signal of the kernel. SIGKILL comes from other processes.
func faulted(ws unix.WaitStatus, known bool) bool {
	const goFault = 2
	switch {
	case !known:
		return true
	case ws.Signaled():
		return ws.Signal() != unix.SIGKILL
	default:
		return ws.ExitStatus() == goFault
	}
}

// hasEnded reports whether the process is known to have ended.
func (b *box) hasEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return b.proc.Exited()
	}
}

// endedError returns the error of calls on a box that has ended.
func (b *box) endedError() error {
	return sandbox.Errorf(sandbox.Unavailable, "the sandbox has ended")
}

// started reports whether Start was called.
func (b *box) started() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Started
}

// letGo releases this process's resources for the box; the box keeps running.
func (b *box) letGo() {
	b.disconnect()
	if b.proc != nil {
		b.proc.Close()
	}
	_ = b.stderr.Close() // it may be nil
}

// disconnect closes every connection into the box and prevents new connections.
func (b *box) disconnect() {
	b.conns.end()
	_ = b.agent.Close()
}

// lock acquires order, unless ctx ends first.
func (b *box) lock(ctx context.Context) error {
	select {
	case b.order <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *box) unlock() { <-b.order }
