package fleet

import (
	"context"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
)

var _ driver.Bringer = (*Driver)(nil)

// bringer brings root filesystems to supplied workers.
type bringer struct {
	to         *board
	supplied   bool  // there is a supplier
	most       int64 // the size of the largest; 0 without a supplier
	furnishMax int64 // the size of the largest that a blank box gets
}

// MayFurnish implements [driver.Bringer].
func (b bringer) MayFurnish(rootfs string) bool {
	size, err := remote.SizeOf(rootfs)
	return !b.supplied || err != nil || size <= b.furnishMax // an error is the caller's at the Stage
}

// Bring implements [driver.Bringer].
func (b bringer) Bring(ctx context.Context, id sandbox.ID, rootfs string) error {
	if b.most == 0 {
		return nil
	}
	if size, err := remote.SizeOf(rootfs); err != nil || size > b.most {
		return err
	}
	b.to.mu.Lock()
	p := b.to.places[id]
	if p == nil || p.member.gone() {
		b.to.mu.Unlock()
		return sandbox.Errorf(sandbox.NotFound, "there is no box %s", id)
	}
	release := b.to.holdPlace(id, p)
	b.to.mu.Unlock()
	defer release()
	unstage, err := p.member.boxes.Stage(ctx, "", driver.Spec{ID: id, RootFS: rootfs}, "")
	if err == nil {
		unstage()
	}
	return err
}
