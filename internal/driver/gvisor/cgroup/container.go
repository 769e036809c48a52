package cgroup

import (
	"fmt"
	"math"
	"path/filepath"
)

// Container reads the memory of the container in which this process runs. Any process of a container may read it.
type Container struct {
	dir           string
	limit         string   // file with the limit
	kills         string   // file with the number of processes that the kernel has killed
	unreclaimable []string // keys in memory.stat of memory that the kernel cannot take back
}

// ThisContainer returns the container of this process.
func ThisContainer() Container { return containerAt("/sys/fs/cgroup") }

func containerAt(root string) Container {
	if c := (Container{root, "memory.max", "memory.events", []string{"anon", "shmem"}}); c.Limit() > 0 {
		return c
	}
	return Container{filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.oom_control", []string{"total_rss", "total_shmem"}}
}

// Limit returns how much memory the container may have; 0 if that has no bound or is not known.
func (c Container) Limit() int64 {
	n, err := readInt(c.dir, c.limit)
	if err != nil || n > math.MaxInt64/2 { // version 1 has the largest number of pages without a limit
		return 0
	}
	return n
}

// Unreclaimable returns how much memory the container has that the kernel cannot take back: without cached files.
func (c Container) Unreclaimable() (unreclaimable int64, err error) {
	for _, key := range c.unreclaimable {
		n, err := readKey(c.dir, "memory.stat", key)
		if err != nil {
			return 0, fmt.Errorf("memory of the container: %w", err)
		}
		unreclaimable += n
	}
	return unreclaimable, nil
}

// Kills returns how many processes of the container the kernel has killed for lack of memory; 0 if that is not known.
func (c Container) Kills() int64 {
	n, err := readKey(c.dir, c.kills, "oom_kill")
	if err != nil {
		return 0
	}
	return n
}
