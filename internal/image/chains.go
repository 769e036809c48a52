package image

import (
	"context"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/chain"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// chains are the chains of layers in the store.
type chains struct {
	keeper    *keeper
	committer *committer
}

var _ chain.Roots = (*chains)(nil)

// Lock implements [chain.Roots].
func (c *chains) Lock(ctx context.Context, work v1.Hash) (unlock func(), err error) {
	return lock.Briefly(ctx, c.keeper.files.lockPath(pullLock+"chain-"+work.Hex), nil)
}

// Find implements [chain.Roots].
func (c *chains) Find(ctx context.Context, id v1.Hash) (*chain.Root, error) {
	ix, err := c.keeper.index.Load()
	if err != nil {
		return nil, err
	}
	rec := ix.ByCacheKey(index.ChainKey(id))
	if rec == nil {
		return nil, nil
	}
	release, err := c.committer.hold(ctx, rec.Digest)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, nil // removed meanwhile
	}
	if err != nil {
		return nil, err
	}
	if c.keeper.verifier.Verify(ctx, rec) != nil { // it is made again
		release()
		return nil, nil
	}
	return c.root(rec, release)
}

// Keep implements [chain.Roots].
func (c *chains) Keep(ctx context.Context, files chain.New) (*chain.Root, error) {
	k := c.keeper
	rec := &index.Record{CacheKey: index.ChainKey(files.ID), Below: files.Below, UpdatedAt: time.Now().UTC()}
	p := &Staged{keeper: k, root: &made{Result: files.Files}, rec: rec, held: true, write: func(rootfs.Blob) (archive.Ref, error) {
		return k.layout.AddLayers(files.Image, files.Layers, files.Dir)
	}}
	if err := k.complete(ctx, p.root, rec); err != nil {
		return nil, err
	}
	if err := k.install(ctx, p, nil); err != nil { // the image over it keeps the store within its bounds
		return nil, err
	}
	k.verifier.Written(rec.Digest)
	return c.root(rec, func() {
		if err := p.release(); err != nil {
			k.files.log.Warn("layers that images may share may be removed early", "error", err)
		}
	})
}

// root describes the root filesystem of a chain.
func (c *chains) root(rec *index.Record, release func()) (*chain.Root, error) {
	manifest, err := c.keeper.layout.Manifest(rec.Manifest.Digest)
	if err != nil {
		release()
		return nil, err
	}
	root := &chain.Root{
		Path: c.keeper.files.erofsPath(rec.Digest), Digests: append([]string{rec.Digest}, rec.Below...), Files: rec.FileCount, Release: release,
	}
	for _, l := range manifest.Layers {
		root.Layers = append(root.Layers, l.Digest)
	}
	return root, nil
}

// collectChains removes the chains that no image needs.
func (rm *Removal) collectChains(ctx context.Context) error {
	ix, err := rm.index.Load()
	if err != nil || len(ix.Loose(rm.leases.InUse)) == 0 {
		return err
	}
	ix, unlock, err := rm.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	loose := ix.Loose(rm.leases.InUse)
	_, err = rm.sweep(ix.Keep(func(r *index.Record) bool { return !loose[r.Digest] }))
	return err
}
