package warmbox

import (
	"context"
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/pool"
)

// bringing is a transfer of the files of an image to the host of a blank box.
type bringing struct {
	mu     sync.Mutex
	digest string // of the image; "" before; guarded by mu
	end    context.CancelFunc
}

// begin begins the transfer of an image, unless there was one. It returns the context of the transfer; nil for none.
func (b *bringing) begin(ctx context.Context, digest string) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.digest != "" {
		return nil
	}
	b.digest = digest
	ctx, b.end = context.WithCancel(ctx)
	return ctx
}

// endUnless ends the transfer, unless it is of the image of a digest. b may be nil.
func (b *bringing) endUnless(digest string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil && b.digest != digest {
		b.end()
	}
}

// mayFurnish reports whether the hosts of blank boxes have space for the image of a kind.
func (k *Keeper) mayFurnish(ctx context.Context, kind pool.Kind) bool {
	d, ok := k.Driver.(driver.Bringer)
	if !ok {
		return true
	}
	_, rootfs, err := k.Images.Resolve(ctx, kind.Digest)
	return err != nil || d.MayFurnish(rootfs) // the create says what is wrong with the image
}

// bring has the driver get the files of the image that a blank box will probably get, in the background: the sandbox that is given the box does not
// wait for them then. A box gets the files of one image at most, as its host has little disk space.
func (k *Keeper) bring(b *pool.Box[Box]) {
	d, ok := k.Driver.(driver.Bringer)
	if !ok || !b.Kind.IsBlank() {
		return
	}
	digest := k.Pool.Likely(b.Kind)
	if digest == "" {
		return
	}
	ctx := b.Value.bringing.begin(b.Value.Context(), digest)
	if ctx == nil {
		return
	}
	if !slices.Contains(k.Pool.Boxes(), b) { // it was taken meanwhile, before there was something to end
		b.Value.bringing.endUnless("")
	}
	k.Work.Go(func() {
		defer b.Value.bringing.endUnless("")
		_, rootfs, err := k.Images.Resolve(ctx, digest)
		if err == nil {
			err = d.Bring(ctx, b.Value.ID, rootfs)
		}
		if err != nil && ctx.Err() == nil {
			k.Logger.Warn("a blank box of the pool waits without an image", "box", b.Value.ID, "image", digest, "error", err)
		}
	})
}
