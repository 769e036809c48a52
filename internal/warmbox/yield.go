package warmbox

import (
	"slices"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// giveWay has boxes of the pool give way to boxes of sandboxes that wait for their space, until the service closes.
func (k *Keeper) giveWay() {
	d, ok := k.Driver.(driver.Yielder)
	for ok {
		select {
		case <-d.Crowded():
			k.yield()
		case <-k.ctx.Done():
			return
		}
	}
}

// yield destroys, in the background, as many boxes of the pool as have to give way now.
func (k *Keeper) yield() {
	d, ok := k.Driver.(driver.Yielder)
	for ok {
		candidates := k.Pool.Candidates()
		ids := make([]sandbox.ID, len(candidates))
		for i, b := range candidates {
			ids[i] = b.Value.ID
		}
		i := slices.Index(ids, d.GiveWay(ids))
		if i < 0 {
			return
		}
		if k.Pool.Take(candidates[i : i+1]) { // else a sandbox got it meanwhile
			k.Logger.Info("a box of the pool is given up for a sandbox that waits", "box", ids[i])
			k.Work.Go(func() { k.Destroy(candidates[i]) })
		}
	}
}
