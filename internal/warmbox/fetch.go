package warmbox

import (
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/pool"
)

// fetch reports whether the driver has got the files of a kind. If not, it gets them in the background, which may take long: other kinds are made
// meanwhile.
func (k *Keeper) fetch(kind pool.Kind) bool {
	if _, ok := k.Driver.(driver.Stager); !ok || kind.IsBlank() {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	has, known := k.fetched[kind]
	if !known {
		k.fetched[kind] = false
		k.Work.Go(func() { k.fetchOrLog(kind) })
	}
	return has
}

func (k *Keeper) fetchOrLog(kind pool.Kind) {
	_, rootfs, err := k.Images.Resolve(k.ctx, kind.Digest)
	if err == nil {
		var release func()
		if release, err = driver.Stage(k.ctx, k.Driver, "", driver.Spec{RootFS: rootfs}, ""); err == nil {
			release() // the driver keeps them while it has space
		}
	}
	if err != nil {
		k.fail(kind, err)
		return
	}
	k.mu.Lock()
	k.fetched[kind] = true
	k.mu.Unlock()
	select {
	case k.arrived <- struct{}{}:
	default:
	}
}

// fail notes, and logs, that no box of a kind could be made. The driver may have lost its files.
func (k *Keeper) fail(kind pool.Kind, err error) {
	k.mu.Lock()
	delete(k.fetched, kind)
	k.mu.Unlock()
	if k.ctx.Err() == nil {
		k.Logger.Warn("no box could be made for the pool", "image", kind.Digest, "error", err)
		k.failed.Store(kind, time.Now())
	}
}
