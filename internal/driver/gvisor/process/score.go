package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// MayLowerScore reports whether this process may set scores below 0.
func MayLowerScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// SetScore sets the score by which the kernel chooses the process that it kills when memory is
// exhausted: the process with the highest sum of score and memory use. A score below 0 becomes 0
// where this process may not set it. If it fails, the kernel may kill the wrong process.
func SetScore(pid, score int) {
	name := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	if err := os.WriteFile(name, []byte(strconv.Itoa(score)), 0); err != nil && score < 0 {
		_ = os.WriteFile(name, []byte("0"), 0)
	}
}
