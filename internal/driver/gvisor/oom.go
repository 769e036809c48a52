package gvisor

import (
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
