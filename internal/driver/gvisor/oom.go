package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// When a box's memory is exhausted, the kernel kills the process with the highest sum of score and
// memory use. It should kill a guest process, the largest first, and neither gVisor, without which
// the box is gone, nor the agent, which is PID 1.
//
// Host processes that run guest code are forked from a helper that gVisor starts with the guest,
// and inherit the score that it had until then; gVisor and the agent get theirs afterwards. Scores
// below 0 need privileges: without, gVisor and the agent get 0.
const (
	guestOOMScore  = 1000
	sentryOOMScore = -900
	agentOOMScore  = -500
)

// mayLowerOOMScore reports whether this process may set scores below 0.
func mayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// setOOMScore sets a score. If it fails, the kernel may kill the wrong process.
func setOOMScore(pid, score int) {
	name := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	if err := os.WriteFile(name, []byte(strconv.Itoa(score)), 0); err != nil && score < 0 {
		_ = os.WriteFile(name, []byte("0"), 0)
	}
}

// processMark identifies a process uniquely since the host started.
type processMark struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in the kernel's ticks
}

// noteHelper finds the helper of a box that has just been started and watches it.
func (d *Driver) noteHelper(b *box) {
	if b.group == nil {
		return // without a limit the helper is not killed
	}
	pids, err := b.group.Processes()
	if err != nil {
		return
	}
	// gVisor starts it before all others, and only gVisor itself is the parent of more processes.
	var helper *processMark
	for _, pid := range pids {
		parent, start, err := parentAndStart(pid)
		if err != nil || parent != b.proc.pid {
			continue
		}
		if helper == nil || start < helper.Start || start == helper.Start && pid < helper.PID {
			helper = &processMark{PID: pid, Start: start}
		}
	}
	if helper == nil {
		return
	}
	if err := b.update(func(s *state) { s.Helper = helper }); err != nil {
		d.cfg.Logger.Warn("after a restart the server will not notice when the sandbox's gVisor breaks for lack of memory", "sandbox", b.id, "error", err)
	}
	d.watchHelper(b, *helper)
}

// watchHelper ends a box whose helper was killed. The helper is small, so the kernel chooses it
// last of the guest's processes, but it can: memory of killed processes is released only when
// gVisor has noticed, and the kernel may kill all of them meanwhile. gVisor goes on, but can never
// start a process again.
func (d *Driver) watchHelper(b *box, mark processMark) {
	helper, err := findProcess(mark.PID, mark.Start)
	if errors.Is(err, errNoProcess) {
		_ = b.proc.kill()
		return
	}
	if err != nil {
		d.cfg.Logger.Warn("the server will not notice when the sandbox's gVisor breaks for lack of memory", "sandbox", b.id, "error", err)
		return
	}
	d.watchers.Go(func() {
		defer helper.close()
		stop := context.AfterFunc(d.life, helper.close)
		defer stop()
		if helper.wait() == nil { // otherwise the driver was closed
			_ = b.proc.kill() // harmless when it has ended already
		}
	})
}

// protectInOOM sets the scores of gVisor and the agent in a box that was just started: the agent
// runs in the host process that was started last.
func (b *box) protectInOOM() {
	setOOMScore(b.proc.pid, sentryOOMScore)
	if b.group == nil {
		return // no limit, and no way to tell which process it is
	}
	pids, err := b.group.Processes()
	if err != nil {
		return
	}
	newest, since := 0, uint64(0)
	for _, pid := range pids {
		if start, err := startTime(pid); err == nil && pid != b.proc.pid && (start > since || start == since && pid > newest) {
			newest, since = pid, start
		}
	}
	if newest != 0 {
		setOOMScore(newest, agentOOMScore)
	}
}
