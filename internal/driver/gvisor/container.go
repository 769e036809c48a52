package gvisor

import (
	"time"

	"github.com/modbox/modbox/internal/driver/gvisor/process"
)

// Without control groups of its own, as in a Pod, a driver cannot limit the memory of a box: all processes share the limit of the container. At the limit, the
// kernel first drops cached files. Among them is the code of running programs, which is read again at once. As long as that frees memory, the kernel kills no
// process: with the files on a disk, everything stands still for minutes. Then it kills the processes with guest code, one by one. That frees nothing, because gVisor has
// the memory of the guest, and a box whose processes were killed may go on without answering. So before that the driver ends the box that exceeds its
// own limit most. It leaves boxes alone that are being saved or read, which takes memory for a while.

const (
	// containerInterval is the time between two looks at the memory of the container.
	containerInterval = 500 * time.Millisecond
	// endPatience bounds the wait for the end of a box that was killed.
	endPatience = 30 * time.Second
	// The driver ends a box when cached files can have less than a marginShare-th of the limit, and less than marginMost. The code of
	// a worker and of a box is as large as that.
	marginShare = 16
	marginMost  = 64 << 20
)

// crowded decides, from two looks in a row at the memory of a container, whether a box must end.
type crowded struct {
	limit int64
	over  bool // the last time
}

// full reports whether there was too little memory now and the last time.
func (c *crowded) full(unreclaimable int64) bool {
	was := c.over
	c.over = unreclaimable > c.limit-min(c.limit/marginShare, marginMost)
	return was && c.over
}

// watchContainer ends boxes when the memory of the container is used up, until the driver is closed.
func (d *Driver) watchContainer() {
	of := d.host.container
	c := crowded{limit: of.Limit()}
	if c.limit == 0 {
		return
	}
	tick := time.NewTicker(containerInterval)
	defer tick.Stop()
	var logged time.Time
	for {
		select {
		case <-d.host.life.Done():
			return
		case <-tick.C:
		}
		unreclaimable, err := of.Unreclaimable()
		if err != nil && time.Since(logged) > time.Minute {
			logged = time.Now()
			d.host.logger.Warn("sandboxes may use all memory of the container", "error", err)
		}
		if err == nil && c.full(unreclaimable) {
			d.endLargest(unreclaimable)
			c.over = false
		}
	}
}

// endLargest ends the box that exceeds its memory limit most, because the container has used up its memory, and waits for its end.
func (d *Driver) endLargest(unreclaimable int64) {
	if len(d.host.readers) > 0 {
		return // gVisor reads files whole into its memory, see raiseMemory
	}
	children := process.Children()
	var largest *box
	var most int64
	for _, id := range d.boxes.ids() {
		b, err := d.boxes.lookup(id)
		if err != nil || b.hasEnded() {
			continue
		}
		b.mu.Lock()
		leaves := b.saved || b.destroyed
		b.mu.Unlock()
		if n := process.PSS(process.Tree(children, b.proc.PID)) - b.resources.MemoryBytes; !leaves && (largest == nil || n > most) {
			largest, most = b, n
		}
	}
	if largest == nil {
		return
	}
	largest.mu.Lock()
	largest.starved = true
	largest.mu.Unlock()
	d.host.logger.Warn("the memory of the container is used up: a sandbox ends", "sandbox", largest.id, "limit", d.host.container.Limit(), "unreclaimable", unreclaimable, "above_its_limit", most)
	_ = largest.proc.Kill() // harmless when it has ended already
	select {
	case <-largest.ended: // its memory is free
	case <-time.After(endPatience):
	case <-d.host.life.Done():
	}
}
