package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// usedEvery is how long an image stays after its last use, even if the disk is full: a sandbox may be
// about to start from it. Files record the last use to half of that.
const usedEvery = 10 * time.Minute

// layerKept is the same for a layer of a build, when other layers of its workspace need the space. No sandbox
// starts from it, and a build holds the layers that it stands on; this is for the moment before it does.
const layerKept = time.Minute

// hold is [Store.Hold].
func (c *committer) hold(ctx context.Context, digest string) (release func(), err error) {
	ix, unlock, err := c.index.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if ix.ByDigest(digest) == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no image with the digest %.100q", digest)
	}
	end, err := c.leases.Hold(ctx, digest)
	if err != nil {
		return nil, err
	}
	return func() {
		if err := end(); err != nil {
			c.log.Warn("a used image may be removed early", "error", err)
		}
	}, nil
}
