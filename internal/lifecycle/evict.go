package lifecycle

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// BoxDisk is what one box takes on the disk of the state directory.
type BoxDisk struct {
	ID    sandbox.ID
	Bytes int64
	// Ending says that the box is being destroyed.
	Ending bool
}

// DiskUse returns what every box takes on the disk, those of builds and of the pool
// included, as far as the driver can tell.
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
		b := s.boxes.byID(id)
		orphan := b == nil && !s.boxes.has(id) // the sweep destroys it
		list = append(list, BoxDisk{ID: id, Bytes: n, Ending: orphan || b != nil && b.sandbox().State == sandbox.Destroying})
	}
	return list, nil
}

// Evict ends a sandbox with cause disk_full, to free what its files take on the disk;
// message is for its owner. A box that no sandbox has is destroyed in the background,
// and the build that it was made for fails. Errors: Unavailable.
func (s *Service) Evict(id sandbox.ID, message string) error {
	b := s.boxes.byID(id)
	if b != nil {
		return s.endAnyway(b, sandbox.Cause{Code: sandbox.CauseDiskFull, Message: clip(message)})
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, destroyTimeout)
		defer cancel()
		if err := s.driver.Destroy(ctx, id); err != nil {
			s.logSweep(fmt.Sprintf("destroy box %s to free space", id), err)
		}
	})
	return nil
}
