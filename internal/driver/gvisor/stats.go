package gvisor

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/sandbox"
)

// Stats implements [driver.Driver]. For a box whose writable layer is in memory,
// DiskBytes counts all its memory file systems.
func (d *Driver) Stats(ctx context.Context, id sandbox.ID) (sandbox.Stats, error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lookup(id)
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
	pids := []int{b.proc.PID}
	if b.group != nil {
		if u, err := b.group.Usage(); err == nil {
			s.MemoryBytes, s.CPUNanos = u.MemoryBytes, u.CPUNanos
		}
		if all, err := b.group.Processes(); err == nil {
			pids = all
		}
	}
	s.HostPSSBytes = process.PSS(pids)
	// Values that a stuck or hostile guest keeps gVisor from returning stay 0.
	s.Processes, _ = b.gvisor.Processes(ctx)
	if b.layout.OnDisk {
		s.DiskBytes = d.host.paths.layers().Bytes(id)
	} else {
		s.DiskBytes, _ = b.gvisor.MemoryFiles(ctx)
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
	_, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lookup(id)
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
	layers := d.host.paths.layers()
	owners, err := layers.Owners()
	if err != nil {
		return nil, err
	}
	use := make(map[sandbox.ID]int64, len(owners))
	for id := range owners {
		use[id] = layers.Bytes(id)
	}
	return use, nil
}
