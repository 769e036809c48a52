package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Stats implements [driver.Driver]. For a box whose writable layer is in memory,
// DiskBytes counts all its memory file systems.
func (d *Driver) Stats(ctx context.Context, id sandbox.ID) (sandbox.Stats, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	b, err := d.lookup(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	if b.hasEnded() {
		return sandbox.Stats{}, b.endedError()
	}
	s := sandbox.Stats{
		Time:          time.Now(),
		MemoryLimit:   b.resources.MemoryBytes,
		CPULimitMilli: b.resources.CPUMilli,
		DiskLimit:     b.resources.DiskBytes,
	}
	pids := []int{b.proc.pid}
	if b.group != nil {
		if u, err := b.group.Usage(); err == nil {
			s.MemoryBytes, s.CPUNanos = u.MemoryBytes, u.CPUNanos
		}
		if all, err := b.group.Processes(); err == nil {
			pids = all
		}
	}
	s.HostPSSBytes = pss(pids)
	// What a stuck or hostile guest keeps gVisor from telling stays 0.
	s.Processes, _ = guestProcesses(ctx, b.dir, string(id))
	if b.layout.OnDisk {
		s.DiskBytes = layerBytes(d.layersDir(), id)
	} else {
		s.DiskBytes, _ = memoryFiles(ctx, b.dir)
	}
	if ctx.Err() != nil {
		return sandbox.Stats{}, context.Cause(ctx)
	}
	if b.hasEnded() {
		return sandbox.Stats{}, b.endedError()
	}
	return s, nil
}

// pss adds up the proportional memory of processes, 0 when it may not be read.
func pss(pids []int) int64 {
	var total int64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
				kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
				total += kib << 10
			}
		}
	}
	return total
}
