// Package hostmem tells how much memory the machine has available.
package hostmem

import (
	"errors"

	"github.com/prometheus/procfs"
)

// Available returns how many bytes of memory processes can get without swapping, as the kernel estimates.
func Available() (int64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	info, err := proc.Meminfo()
	if err != nil {
		return 0, err
	}
	if info.MemAvailableBytes == nil {
		return 0, errors.New("/proc/meminfo does not say how much memory is available")
	}
	return int64(*info.MemAvailableBytes), nil
}
