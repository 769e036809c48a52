package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// When a box's memory is used up, the kernel ends the process with the highest
// score plus memory use. A guest process should go then, the largest first, and
// neither gVisor, without which the box is gone, nor the agent, which is PID 1.
//
// Host processes that run guest code are forked from a helper that gVisor makes
// when the guest starts, and inherit the score that it had until then; gVisor and
// the agent get theirs afterwards. Lower than 0 takes privileges: without, they
// get 0.
const (
	guestOOMScore  = 1000
	sentryOOMScore = -900
	agentOOMScore  = -500
)

// mayLowerOOMScore says whether this process may give scores below 0.
func mayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// setOOMScore sets a score. Without it the wrong process may be chosen, no more.
func setOOMScore(pid, score int) {
	name := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	if err := os.WriteFile(name, []byte(strconv.Itoa(score)), 0); err != nil && score < 0 {
		_ = os.WriteFile(name, []byte("0"), 0)
	}
}

// processMark tells a process from all others since the host started.
type processMark struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in the kernel's ticks
}

// noteHelper finds the helper of a box that has just been started and watches it.
func (d *Driver) noteHelper(b *box) {
	if b.group == nil {
		return // no limit that it could be killed for
	}
	pids, err := b.group.Processes()
	if err != nil {
		return
	}
	// gVisor makes it before all others, and is the parent of more than it.
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
		d.cfg.Logger.Warn("after a restart the server will not see when the sandbox's gVisor breaks for want of memory", "sandbox", b.id, "error", err)
	}
	d.watchHelper(b, *helper)
}

// watchHelper ends a box whose helper was killed. The helper is small, so that it
// is the last of the guest's processes to be chosen, but it can be: the memory of
// those that were killed is free only when gVisor has noticed, and the kernel may
// kill all of them meanwhile. gVisor goes on, but can never start a process again.
func (d *Driver) watchHelper(b *box, mark processMark) {
	helper, err := findProcess(mark.PID, mark.Start)
	if errors.Is(err, errNoProcess) {
		_ = b.proc.kill()
		return
	}
	if err != nil {
		d.cfg.Logger.Warn("the server will not see when the sandbox's gVisor breaks for want of memory", "sandbox", b.id, "error", err)
		return
	}
	d.watchers.Go(func() {
		defer helper.close()
		stop := context.AfterFunc(d.life, helper.close)
		defer stop()
		if helper.wait() == nil { // else the driver was closed
			_ = b.proc.kill() // harmless when that was first
		}
	})
}

// protectInOOM sets the scores of gVisor and the agent in a box that was just
// started: the agent runs in the host process that was made last.
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
