package gvisor

import (
	"context"
	"errors"

	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
)

// When a box's memory is exhausted, the kernel kills the process with the highest sum of score and
// memory use. It should kill a guest process, the largest first, and neither gVisor, without which
// the box is gone, nor the agent, which is PID 1.
//
// Host processes that run guest code are forked from a helper that gVisor starts with the guest,
// and inherit the score that it had until then, [launch.GuestScore]; gVisor and the agent get
// theirs afterwards. Scores below 0 need privileges: without, gVisor and the agent get 0.
const (
	sentryScore = -900
	agentScore  = -500
)

// noteHelper finds the helper of a box that has just been started and watches it.
func (b *box) noteHelper() {
	if b.group == nil {
		return // see watchContainer
	}
	pids, err := b.group.Processes()
	if err != nil {
		return
	}
	// gVisor starts it before all others, and only gVisor itself is the parent of more processes.
	var helper *process.Mark
	for _, pid := range pids {
		parent, start, err := process.ParentAndStart(pid)
		if err != nil || parent != b.proc.PID {
			continue
		}
		if helper == nil || start < helper.Start || start == helper.Start && pid < helper.PID {
			helper = &process.Mark{PID: pid, Start: start}
		}
	}
	if helper == nil {
		return
	}
	if err := b.update(func(s *state) { s.Helper = helper }); err != nil {
		b.host.logger.Warn("after a restart the server will not notice when the sandbox's gVisor breaks for lack of memory", "sandbox", b.id, "error", err)
	}
	b.watchHelper(*helper)
}

// watchHelper ends a box whose helper was killed. The helper is small, so the kernel chooses it
// last of the guest's processes, but it can: memory of killed processes is released only when
// gVisor has noticed, and the kernel may kill all of them meanwhile. gVisor goes on, but can never
// start a process again.
func (b *box) watchHelper(mark process.Mark) {
	helper, err := mark.Find()
	if errors.Is(err, process.ErrNone) {
		_ = b.proc.Kill()
		return
	}
	if err != nil {
		b.host.logger.Warn("the server will not notice when the sandbox's gVisor breaks for lack of memory", "sandbox", b.id, "error", err)
		return
	}
	b.host.watchers.Go(func() {
		defer helper.Close()
		stop := context.AfterFunc(b.host.life, helper.Close)
		defer stop()
		if helper.Wait() == nil { // otherwise the driver was closed
			_ = b.proc.Kill() // harmless when it has ended already
		}
	})
}

// protectInOOM sets the scores of gVisor and the agent in a box that was just started: the agent
// runs in the host process that was started last. On KVM there is no process but gVisor's, which has the
// memory of the guest: it must not be protected from the kernel.
func (b *box) protectInOOM() {
	b.mu.Lock()
	on := b.state.Platform
	b.mu.Unlock()
	if on == platform.KVM {
		return
	}
	process.SetScore(b.proc.PID, sentryScore)
	if b.group == nil {
		return // no limit, and no way to tell which process it is
	}
	pids, err := b.group.Processes()
	if err != nil {
		return
	}
	newest, since := 0, uint64(0)
	for _, pid := range pids {
		if _, start, err := process.ParentAndStart(pid); err == nil && pid != b.proc.PID && (start > since || start == since && pid > newest) {
			newest, since = pid, start
		}
	}
	if newest != 0 {
		process.SetScore(newest, agentScore)
	}
}
