package warmbox

import (
	"context"
	"errors"
	"sync"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
)

// spaceAttempts bounds how often boxes of the pool are given up for a box: others may be placed in the space first.
const spaceAttempts = 10

// Stage is [driver.Stage] for the box of a sandbox or build, which was admitted: while no host has space for the box, boxes of the pool are given
// up, if that helps.
func (k *Keeper) Stage(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (release func(), err error) {
	for attempt := 0; ; attempt++ {
		release, err = driver.Stage(ctx, k.Driver, w, spec, checkpoint)
		if attempt == spaceAttempts || !errors.Is(err, driver.ErrFull) || !k.makeSpace(ctx, spec, checkpoint) {
			return release, err
		}
	}
}

// makeSpace gives up the boxes of the pool that take the space of a box. It reports whether there may be space now.
func (k *Keeper) makeSpace(ctx context.Context, spec driver.Spec, checkpoint string) bool {
	d, ok := k.Driver.(driver.Placer)
	if !ok {
		return false
	}
	byID := map[sandbox.ID]*pool.Box[Box]{}
	var candidates []sandbox.ID
	for _, b := range k.Pool.Candidates() {
		candidates = append(candidates, b.Value.ID)
		byID[b.Value.ID] = b
	}
	ids, ok := d.MakeSpace(ctx, spec, checkpoint, candidates)
	if !ok {
		return false
	}
	var boxes []*pool.Box[Box]
	for _, id := range ids {
		boxes = append(boxes, byID[id])
	}
	if len(boxes) == 0 || !k.Pool.Take(boxes) { // there is space by now, or a sandbox got one of them meanwhile
		return ctx.Err() == nil
	}
	k.Logger.Info("boxes of the pool are given up for a sandbox", "sandbox", spec.ID, "boxes", len(boxes))
	var all sync.WaitGroup
	for _, b := range boxes {
		all.Go(func() { k.Destroy(b) })
	}
	all.Wait()
	return ctx.Err() == nil
}
