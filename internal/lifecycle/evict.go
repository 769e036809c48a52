package lifecycle

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// BoxDisk is the disk use of a box in the state directory.
type BoxDisk struct {
	ID    sandbox.ID
	Bytes int64
	// Ending says that the box is being destroyed.
	Ending bool
}

// DiskUse returns the disk use of every box, including boxes of builds and of the pool, as far as
// the driver can measure it.
func (s *Service) DiskUse() ([]BoxDisk, error) {
	m, ok := s.driver.(driver.DiskMeter)
	if !ok {
		return nil, nil
	}
	use, err := m.DiskUse()
	if err != nil {
		return nil, err
	}
	list := make([]BoxDisk, 0, len(use))
	for id, n := range use {
		b := s.boxes.ByID(id)
		orphan := b == nil && !s.boxes.Has(id) // the sweep destroys it
		list = append(list, BoxDisk{ID: id, Bytes: n, Ending: orphan || b != nil && (b.evicted.Load() != nil || b.Sandbox().State == sandbox.Destroying)})
	}
	return list, nil
}

// Evict ends a sandbox with cause disk_full, to free what its files take on the disk;
// message is for its owner. It returns at once: the box is destroyed in the background,
// before its end is recorded, because it may write on meanwhile. A server that is killed in
// between finds a sandbox without a box. For a box that no sandbox has, the build that it
// was made for fails. Errors: Unavailable.
func (s *Service) Evict(id sandbox.ID, message string) error {
	b := s.boxes.ByID(id)
	if b != nil && !b.evicted.CompareAndSwap(nil, &sandbox.Cause{Code: sandbox.CauseDiskFull, Message: sandbox.OneLine(message)}) {
		return nil
	}
	s.disk.evicting.Add(1)
	if !s.work.Go(func() {
		defer func() {
			s.disk.evicting.Add(-1)
			s.quotas.Released()
		}()
		ctx, cancel := context.WithTimeout(s.ctx, destroyTimeout)
		defer cancel()
		if err := s.driver.Destroy(ctx, id); err != nil && s.ctx.Err() == nil {
			s.logSweep(fmt.Sprintf("destroy box %s to free space", id), err)
		}
	}) {
		s.disk.evicting.Add(-1)
		return box.ErrClosed
	}
	if b != nil {
		s.work.Go(func() { s.endOrLog(b, *b.evicted.Load()) })
	}
	return nil
}
