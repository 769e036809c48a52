package image

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// Staged is an image whose files are complete and on the disk, outside the store. The caller
// publishes it at most once, and discards it in any case. It is not safe for concurrent use.
type Staged struct {
	keeper *keeper
	root   *made
	rec    *index.Record
	write  func(layer rootfs.Blob) (archive.Ref, error) // adds the OCI image to the layout
	done   bool                                         // the store has the image already
	task   string                                       // for errors
	user   sandbox.WorkspaceID                          // see [CommitRequest]
	undo   cleanup.Cleanup
	// held holds the image once it is part of the store, until release.
	held    bool
	release func() error
}

// Check returns an error if a workspace may not have add more bytes of images. It may take locks and
// call the store.
type Check func(ctx context.Context, add int64) error

// Publish makes a staged image part of the store, once check, which may be nil, accepts the bytes
// that the image adds for its workspace. If check refuses because the disk of the workspace is
// full, Publish removes images of the workspace's build cache, and calls check again once. It calls
// check without a lock, and again if the store changed before the image was part of it.
//
// Errors: the errors of check, and of the file system; QuotaExceeded when the build cache of the workspace can have no
// other entry. On any error the store is unchanged, except
// for the removed images.
func (p *Staged) Publish(ctx context.Context, check Check) (Committed, error) {
	if !p.done {
		if err := p.keeper.publish(ctx, p, check); err != nil {
			return Committed{}, fmt.Errorf("%s: %w", p.task, err)
		}
	}
	done := p.keeper.committed(p.rec)
	if p.rec.Single() {
		ix, err := p.keeper.index.Load() // in which the layer keeps what counts for its workspace
		if err != nil {
			return Committed{}, err
		}
		done.Counted = ix.Counted(p.rec.Below, p.user)
	}
	return done, nil
}

// Images returns the bytes of the named images of the image's workspace, as [Store.Owned] counts them, once the image is
// published: what it needs of the build cache, or of other images, counts once, and what it replaces does not.
func (p *Staged) Images() (int64, error) {
	ix, err := p.keeper.index.Load()
	if err != nil {
		return 0, err
	}
	return p.keeper.removal.sizes.ImagesWith(ix, *p.rec)
}

// Discard removes the files of an image that was not published.
func (p *Staged) Discard() { p.undo.Clean() }

// errChanged reports that the index is not the index for which check accepted the image.
var errChanged = errors.New("the store has changed")

// publish does the work of [Staged.Publish].
func (k *keeper) publish(ctx context.Context, p *Staged, check Check) error {
	if ws := p.rec.Payer(); ws != "" && !p.rec.Single() { // it is an entry of the build cache, or another image becomes one
		if _, err := k.removal.TrimBuildCache(ctx, ws, math.MaxInt64); err != nil {
			return err
		}
	}
	for {
		seen, err := k.check(ctx, p, check)
		// An evicted layer may have counted with an image below it, which then counts with this layer, so that a second eviction is
		// needed. Each eviction makes the cache smaller.
		if short := quota.DiskShort(err); short > 0 {
			freed, ferr := k.removal.evictBuildCache(ctx, p.rec.Payer(), short)
			if ferr != nil {
				return ferr
			}
			if freed {
				continue
			}
		}
		if err != nil {
			return err
		}
		if err = k.install(ctx, p, seen); err == nil {
			break
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	k.verifier.Written(p.rec.Digest)
	k.removal.trim(ctx)
	return nil
}

// check calls check, and returns the generation of the index that it could see; nil without a check.
func (k *keeper) check(ctx context.Context, p *Staged, check Check) (*index.Generation, error) {
	if check == nil {
		return nil, nil
	}
	seen, err := k.index.Generation()
	if err != nil {
		return nil, err
	}
	ix, err := k.index.Load()
	if err != nil {
		return nil, err
	}
	return &seen, check(ctx, ix.Adds(p.rec, p.root.Layer.Size))
}
