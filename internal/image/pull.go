package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/chain"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/sizes"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"golang.org/x/sync/errgroup"
)

// PullOptions configure a pull.
type PullOptions struct {
	// Puller is the workspace that the image is for: [Options.Login] returns its credentials.
	Puller registry.Puller
	// Progress receives events, from one goroutine at a time; may be nil. It must return soon. In
	// PhasePulling it counts bytes.
	Progress func(phase.Event)
}

// Bounds on pulls.
const (
	pullEntries  = 5_000_000
	pullParallel = 3
)

// pullLock begins the names of the locks of references that are being pulled.
const pullLock = "pull-"

// puller makes images of images in registries.
type puller struct {
	registries *remote.Client
	downloads  *remote.Downloads
	index      *index.Table
	names      *names
	files      *files
	layout     archive.Layout
	sizes      *sizes.Meter
	keeper     *keeper
	maker      *chain.Maker
	space      sizes.Space
}

// pullAs is [Store.Pull].
func (p *puller) pullAs(ctx context.Context, ref string, opts PullOptions) (spec.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	opts.Progress = phase.Serialised(opts.Progress)
	parsed, err := reference.Parse(ref, p.names.defaultRegistry)
	if err != nil {
		return spec.Image{}, err
	}
	if parsed.Remote == nil {
		return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "%.100q names no registry, and this server has no default one (images.default_registry)", ref)
	}
	// References are longer than names of files may be.
	what := sha256.Sum256([]byte(reference.RepositoryName(parsed.Remote) + reference.Identifier(parsed.Remote)))
	unlock, err := lock.Briefly(ctx, p.files.lockPath(pullLock+hex.EncodeToString(what[:])), func() {
		opts.Progress(phase.Event{Phase: phase.Waiting, Message: "another pull of " + ref + " is running"})
	})
	if err != nil {
		return spec.Image{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	defer unlock()
	defer p.downloads.Trim()
	rec, err := p.pull(ctx, parsed.Remote, opts)
	if err != nil {
		return spec.Image{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	opts.Progress(phase.Event{Phase: phase.Done, Message: "pulled"})
	return p.names.imageOf(rec), nil
}

// pull does the work of Pull. The caller holds the lock of the reference.
func (p *puller) pull(ctx context.Context, ref ociname.Reference, opts PullOptions) (*index.Record, error) {
	repo, err := p.registries.Open(ctx, ref.Context(), opts.Puller, remote.Pull)
	if err != nil {
		return nil, err
	}
	opts.Progress(phase.Event{Phase: phase.Pulling, Message: "looking for " + ref.Identifier()})
	target, err := repo.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if rec, err := p.pulled(ctx, ref, target.Digest(), repo.Proof()); rec != nil || err != nil {
		return rec, err
	}
	img, err := target.Image(ctx)
	if err != nil {
		return nil, err
	}
	return p.pullImage(ctx, repo, ref, target.Digest(), img, opts)
}

// pulled returns the record of a reference that means the digest already and is intact, and records
// the check and the workspace.
func (p *puller) pulled(ctx context.Context, ref ociname.Reference, digest v1.Hash, proof string) (*index.Record, error) {
	ix, unlock, err := p.index.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	rec := ix.Pulled(ref)
	if rec == nil || rec.Pull.Asked != digest || !verify.Untouched(p.files.erofsPath(rec.Digest), rec) {
		return nil, nil
	}
	rec.Pull.CheckedAt = time.Now().UTC()
	rec.Pull.Prove(proof)
	done := *rec
	return &done, p.index.Write(ix)
}

// pullImage downloads and unpacks an image and adds it to the store. asked is the digest of the
// reference, perhaps of an index.
func (p *puller) pullImage(ctx context.Context, repo *remote.Repository, ref ociname.Reference, asked v1.Hash, img oci.Image, opts PullOptions) (*index.Record, error) {
	most, err := p.space.For(img.Manifest)
	if err != nil {
		return nil, err
	}
	work, undo, err := p.files.workDir(ctx)
	if err != nil {
		return nil, err
	}
	defer undo.Clean()

	if img.Config, err = p.fetchConfig(ctx, repo, img.Manifest.Config, oci.ConfigFile(work)); err != nil {
		return nil, err
	}
	if err := img.CheckLayers(); err != nil {
		return nil, err
	}
	config, err := oci.RunConfig(&img.Config.Config)
	if err != nil {
		return nil, err
	}
	files, err := p.fetchLayers(ctx, repo, img, opts.Puller.Workspace, most, work, opts.Progress)
	defer p.settle(ctx, &files)
	if err != nil {
		return nil, err
	}
	rec := index.Pulled(ref, asked, config, img.Config.Config.Labels["org.opencontainers.image.description"])
	if repo.Proof() != "" {
		rec.Pull.Private = true
		rec.Pull.Prove(repo.Proof())
	}
	if err := p.keeper.keepPulled(ctx, &files, &rec, img, work); err != nil {
		return nil, err
	}
	p.downloads.Remove(repo, append(slices.Clone(img.Manifest.Layers), img.Manifest.Config)...)
	return &rec, nil
}

// fetchConfig downloads the configuration of an image to a file, and reads it. Errors: Invalid.
func (p *puller) fetchConfig(ctx context.Context, repo *remote.Repository, blob v1.Descriptor, to string) (*v1.ConfigFile, error) {
	if err := p.fetch(ctx, repo, blob, to, func(int64) {}); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(to)
	if err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "the image's configuration cannot be read")
	}
	return config, nil
}

// fetchLayers downloads all layers, some of them in parallel, and applies each as soon as it and
// the layers below it are complete.
func (p *puller) fetchLayers(ctx context.Context, repo *remote.Repository, img oci.Image, owner sandbox.WorkspaceID, most int64, dir string, progress func(phase.Event)) (files chain.Result, err error) {
	var mu sync.Mutex
	var done, total int64
	for _, l := range img.Manifest.Layers {
		total += l.Size
	}
	count := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		progress(phase.Event{Phase: phase.Pulling, Done: done, Total: total, Message: "layers"})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pullParallel + 1)
	ready := make([]chan struct{}, len(img.Manifest.Layers))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	group.Go(func() (err error) {
		files, err = p.unpack(ctx, img, owner, most, dir, ready, progress)
		return err
	})
	for i, l := range img.Manifest.Layers {
		group.Go(func() error {
			if err := p.fetch(ctx, repo, l, oci.LayerFile(dir, i), count); err != nil {
				return err
			}
			close(ready[i])
			return nil
		})
	}
	err = group.Wait()
	return files, err
}

// unpack applies the layers of an image as they become complete, at most most bytes of them, and
// writes the root filesystem. Its memory counts for the owner. The caller settles the result, also after an error.
func (p *puller) unpack(ctx context.Context, img oci.Image, owner sandbox.WorkspaceID, most int64, dir string, ready []chan struct{}, progress func(phase.Event)) (chain.Result, error) {
	return p.maker.Make(ctx, chain.Job{
		Image: img, Owner: owner, Limits: rootfs.Limits{Bytes: most, Entries: pullEntries}, Dir: dir,
		Ready: func(ctx context.Context, i int) error {
			select {
			case <-ready[i]:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		Writing: func() { progress(phase.Event{Phase: phase.Writing, Message: "root filesystem"}) },
	})
}

// settle ends the use of chains by a pull, and removes chains that no image needs.
func (p *puller) settle(ctx context.Context, files *chain.Result) {
	files.Release()
	if err := p.keeper.removal.collectChains(context.WithoutCancel(ctx)); err != nil {
		p.files.log.Warn("the remains of a pull cannot be removed", "error", err)
	}
}
