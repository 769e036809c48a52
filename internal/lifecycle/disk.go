package lifecycle

import (
	"context"
	"log/slog"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/diskuse"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// BoxDisk is the disk use of a box in the state directory.
type BoxDisk struct {
	ID    sandbox.ID
	Bytes int64
	// Ending says that the box is being destroyed.
	Ending bool
}

// Disk knows what boxes take on the disk, and frees it. Its methods are safe for concurrent use.
type Disk struct {
	driver driver.Driver
	boxes  *box.Index[*entry]
	ender  *ender
	quotas *quota.Controller
	use    *diskuse.Meter
	work   *background.Group
	ctx    context.Context // of work
	log    *slog.Logger
}

// Use returns the disk use of every box, including boxes of builds and of the pool, as far as
// the driver can measure it.
func (d *Disk) Use() ([]BoxDisk, error) {
	m, ok := d.driver.(driver.DiskMeter)
	if !ok {
		return nil, nil
	}
	use, err := m.DiskUse()
	if err != nil {
		return nil, err
	}
	list := make([]BoxDisk, 0, len(use))
	for id, n := range use {
		b := d.boxes.ByID(id)
		orphan := b == nil && !d.boxes.Has(id) // the sweep destroys it
		list = append(list, BoxDisk{ID: id, Bytes: n, Ending: orphan || b != nil && (b.evicted.Load() != nil || b.Sandbox().State == sandbox.Destroying)})
	}
	return list, nil
}

// Evict ends a sandbox with cause disk_full, to free what its files take on the disk;
// message is for its owner. It returns at once: the box is destroyed in the background,
// before its end is recorded, because it may write on meanwhile. A server that is killed in
// between finds a sandbox without a box. For a box that no sandbox has, the build that it
// was made for fails. Errors: Unavailable.
func (d *Disk) Evict(id sandbox.ID, message string) error {
	b := d.boxes.ByID(id)
	if b != nil && !b.evicted.CompareAndSwap(nil, &sandbox.Cause{Code: sandbox.CauseDiskFull, Message: sandbox.OneLine(message)}) {
		return nil
	}
	d.use.BeginEviction()
	if !d.work.Go(func() {
		defer func() {
			d.use.EndEviction()
			d.quotas.Released()
		}()
		ctx, cancel := context.WithTimeout(d.ctx, destroyTimeout)
		defer cancel()
		if err := d.driver.Destroy(ctx, id); err != nil && d.ctx.Err() == nil {
			d.log.Error("box not destroyed to free space", "box", id, "error", err)
		}
	}) {
		d.use.EndEviction()
		return box.ErrClosed
	}
	if b != nil {
		d.work.Go(func() { d.ender.endOrLog(b, *b.evicted.Load()) })
	}
	return nil
}
