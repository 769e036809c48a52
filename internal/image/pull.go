package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/sizes"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
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
	pullEntries   = 5_000_000
	pullParallel  = 3
	fullDiskRetry = time.Minute // the advised pause before another pull on a full disk
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
	scratch    *rootfs.Scratch
	// maxDisk and minFree are as in Options.
	maxDisk, minFree int64
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
	if rec == nil || rec.Pull.Asked != digest || !untouched(p.files.erofsPath(rec.Digest), rec) {
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
	most, err := p.freeFor(img.Manifest)
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
	root, err := p.fetchLayers(ctx, repo, img, opts.Puller.Workspace, most, work, opts.Progress)
	if err != nil {
		return nil, err
	}
	rec := pullRecordOf(ref, asked, img, config)
	if repo.Proof() != "" {
		rec.Pull.Private = true
		rec.Pull.Prove(repo.Proof())
	}
	if err := p.keeper.keepPulled(ctx, root, &rec, img); err != nil {
		return nil, err
	}
	p.downloads.Remove(repo, append(slices.Clone(img.Manifest.Layers), img.Manifest.Config)...)
	return &rec, nil
}

// pullRecordOf returns the record of an image that was pulled as ref.
func pullRecordOf(ref ociname.Reference, asked v1.Hash, img oci.Image, config spec.Config) index.Record {
	name, tag := reference.RepositoryName(ref), ref.Identifier()
	if _, ok := ref.(ociname.Digest); ok {
		tag = ""
	}
	now := time.Now().UTC()
	rec := index.Record{
		Name: name, Tag: tag, Current: true, Config: config, Description: img.Config.Config.Labels["org.opencontainers.image.description"], UpdatedAt: now,
		Pull: &index.Pull{Reference: name + reference.Identifier(ref), Asked: asked, CheckedAt: now},
	}
	if rec.Description = strings.ToValidUTF8(rec.Description, ""); len(rec.Description) > 200 {
		rec.Description = ""
	}
	return rec
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

// freeFor returns the bytes that the layers of a manifest may have uncompressed. It refuses an
// image whose layers have more bytes than all images may take, or than the disk has free, before
// any of them is downloaded. The download refuses a layer that is larger than the manifest says.
//
// Errors: TooLarge; Unavailable while the disk is full.
func (p *puller) freeFor(m *v1.Manifest) (int64, error) {
	var packed, missing int64
	for _, l := range m.Layers {
		packed += l.Size
		if _, err := os.Stat(p.layout.Blob(l.Digest)); err != nil {
			missing += l.Size
		}
	}
	if p.maxDisk > 0 && packed > p.maxDisk {
		return 0, sandbox.Errorf(sandbox.TooLarge, "the layers of the image are %s, and all images may take %s (images.max_disk)", showMiB(packed), showMiB(p.maxDisk))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(p.files.dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", p.files.dir, err)
	}
	free := int64(st.Bavail)*st.Bsize - p.minFree
	if missing > free {
		e := sandbox.Errorf(sandbox.Unavailable, "the server's disk has not enough space for the image: its missing layers have %s, and %s may be used", showMiB(missing), showMiB(max(0, free)))
		e.RetryAfter = fullDiskRetry
		return 0, e
	}
	most := min(oci.MaxBytes, max(0, free))
	if p.maxDisk > 0 {
		most = min(most, p.maxDisk)
	}
	return most, nil
}

func showMiB(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// fetchLayers downloads all layers, some of them in parallel, and applies each as soon as it and
// the layers below it are complete.
func (p *puller) fetchLayers(ctx context.Context, repo *remote.Repository, img oci.Image, owner sandbox.WorkspaceID, most int64, dir string, progress func(phase.Event)) (*made, error) {
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
	var root *made
	group.Go(func() (err error) {
		root, err = p.unpack(ctx, img, owner, most, dir, ready, progress)
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
	return root, group.Wait()
}

// unpack applies the layers of an image as they become complete, at most most bytes of them, and
// writes the root filesystem. Its memory counts for the owner.
func (p *puller) unpack(ctx context.Context, img oci.Image, owner sandbox.WorkspaceID, most int64, dir string, ready []chan struct{}, progress func(phase.Event)) (*made, error) {
	u, err := rootfs.NewUnpacker(ctx, p.scratch, owner, dir, rootfs.Limits{Bytes: most, Entries: pullEntries})
	if err != nil {
		return nil, err
	}
	defer u.Close()
	for i := range ready {
		select {
		case <-ready[i]:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := u.Layer(ctx, oci.LayerFile(dir, i), img.Config.RootFS.DiffIDs[i]); err != nil {
			return nil, fmt.Errorf("layer %d, %s: %w", i+1, img.Manifest.Layers[i].Digest, err)
		}
	}
	progress(phase.Event{Phase: phase.Writing, Message: "root filesystem"})
	root, err := u.Finish(ctx)
	return &made{Result: root}, err
}
