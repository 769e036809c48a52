package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver"
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
	// Values that a stuck or hostile guest keeps gVisor from returning stay 0.
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

// Usage implements [driver.Meter].
func (d *Driver) Usage(ctx context.Context, id sandbox.ID) (driver.Usage, error) {
	_, leave := d.enter(ctx)
	defer leave()
	b, err := d.lookup(id)
	if err != nil || b.group == nil {
		return driver.Usage{}, err
	}
	u, err := b.group.Usage()
	if err != nil {
		return driver.Usage{}, publicError(err, "usage of box %s", id)
	}
	return driver.Usage{CPU: time.Duration(u.CPUNanos), MemoryBytes: u.MemoryBytes}, nil
}

// DiskUse implements [driver.DiskMeter].
func (d *Driver) DiskUse() (map[sandbox.ID]int64, error) {
	entries, err := os.ReadDir(d.layersDir())
	if err != nil {
		return nil, fmt.Errorf("measure layers: %w", err)
	}
	use := make(map[sandbox.ID]int64, len(entries))
	for _, e := range entries {
		if id, ok := layerOwner(e.Name()); ok {
			if _, measured := use[id]; !measured {
				use[id] = layerBytes(d.layersDir(), id)
			}
		}
	}
	return use, nil
}

// pss adds up the proportional memory of processes; 0 when it may not be read. Processes that share
// their memory, such as the helpers through which gVisor runs a guest process, count once.
func pss(pids []int) int64 {
	var total int64
	var counted []int
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil || slices.ContainsFunc(counted, func(other int) bool { return sameMemory(pid, other) }) {
			continue
		}
		counted = append(counted, pid)
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
				kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
				total += kib << 10
			}
		}
	}
	return total
}

// sameMemory reports whether two processes share their address space. On a kernel without kcmp,
// they count as different.
func sameMemory(a, b int) bool {
	const kcmpVM = 1 // KCMP_VM of linux/kcmp.h
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}
