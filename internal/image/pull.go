package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// PullOptions says how to pull.
type PullOptions struct {
	// Who the image is for: [Options.Login] signs in for them.
	Who sandbox.Puller
	// Progress is told what happens, by one goroutine at a time; may be nil. It
	// must return soon. In PhasePulling it counts bytes.
	Progress func(phase.Event)
}

// Bounds on what is pulled.
const (
	layersMax     = 256
	configMax     = 1 << 20   // bytes of an image's configuration
	pullMaxBytes  = 128 << 30 // of all layers, and of their files
	pullEntries   = 5_000_000
	pullParallel  = 3
	fullDiskRetry = time.Minute // what who finds the disk full is told to wait
)

// pullLock begins the names of the locks of references that are being pulled.
const pullLock = "pull-"

// Pull makes the image that a registry has under a reference one of the store,
// and what the reference means: the host's platform out of an index, every layer
// checked against its digests. A tag is always asked for; what is here already is
// not fetched again. Pulls of one reference at the same time, in this process
// and others, share one; what several images of one repository have in common is
// fetched once; and what a pull that ended early has fetched is used by the next.
//
// Errors: Invalid for what is no reference, and for an image whose layers are
// malformed or hostile; NotFound when no registry has it; Forbidden when the
// registry wants other credentials; Unsupported for an image of another platform
// or kind; TooLarge; Timeout for a registry that stalls, and Unavailable for one
// that cannot be reached, limits pulls, or sends what it should not. They carry the
// registry's words. On any error what the store has is as before.
func (s *Store) Pull(ctx context.Context, ref string, opts PullOptions) (sandbox.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	opts.Progress = phase.Serialised(opts.Progress)
	parsed, err := reference.Parse(ref, s.defaultRegistry)
	if err != nil {
		return sandbox.Image{}, err
	}
	if parsed.Remote == nil {
		return sandbox.Image{}, sandbox.Errorf(sandbox.NotFound, "%.100q names no registry, and this server has no default one (images.default_registry)", ref)
	}
	// References are longer than names of files may be.
	what := sha256.Sum256([]byte(reference.RepositoryName(parsed.Remote) + reference.Identifier(parsed.Remote)))
	unlock, err := lockBriefly(ctx, s.lockPath(pullLock+hex.EncodeToString(what[:])), func() {
		opts.Progress(phase.Event{Phase: phase.Waiting, Message: "another pull of " + ref + " is running"})
	})
	if err != nil {
		return sandbox.Image{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	defer unlock()
	defer s.trimParts()
	rec, err := s.pull(ctx, parsed.Remote, opts)
	if err != nil {
		return sandbox.Image{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	opts.Progress(phase.Event{Phase: phase.Done, Message: "pulled"})
	return s.imageOf(rec), nil
}

// pull does the work of Pull. The caller holds the reference's lock.
func (s *Store) pull(ctx context.Context, ref ociname.Reference, opts PullOptions) (*record, error) {
	reg, err := s.openRegistry(ctx, ref.Context(), opts.Who, transport.PullScope)
	if err != nil {
		return nil, err
	}
	opts.Progress(phase.Event{Phase: phase.Pulling, Message: "looking for " + ref.Identifier()})
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	desc, err := remote.Get(ref, remote.WithContext(ctx), remote.WithTransport(reg.transport), remote.WithPlatform(platform))
	if err != nil {
		return nil, reg.explain(ctx, err)
	}
	if rec, err := s.pulled(ctx, ref, desc.Digest, reg.proof); rec != nil || err != nil {
		return rec, err
	}
	raw, manifest, err := chooseManifest(ctx, reg, desc, platform)
	if err != nil {
		return nil, err
	}
	return s.pullManifest(ctx, reg, ref, pulledImage{asked: desc.Digest, raw: raw, manifest: manifest}, opts)
}

// pulledImage is what an image's manifest says.
type pulledImage struct {
	asked    v1.Hash // what the reference named, an index perhaps
	raw      []byte  // the manifest
	manifest *v1.Manifest
	config   *v1.ConfigFile
}

// chooseManifest returns the manifest for the platform.
func chooseManifest(ctx context.Context, reg *registry, desc *remote.Descriptor, platform v1.Platform) ([]byte, *v1.Manifest, error) {
	if !desc.MediaType.IsImage() && !desc.MediaType.IsIndex() {
		return nil, nil, sandbox.Errorf(sandbox.Unsupported, "%s is not an image but %.100q", reg.repo, desc.MediaType)
	}
	if desc.MediaType.IsIndex() {
		index, err := v1.ParseIndexManifest(bytes.NewReader(desc.Manifest))
		if err != nil {
			return nil, nil, sandbox.Wrap(sandbox.Invalid, err, "the image's index cannot be read")
		}
		if !hasPlatform(index, platform) {
			return nil, nil, sandbox.Errorf(sandbox.Unsupported, "%s has no image for linux/%s; it has %s", reg.repo, platform.Architecture, platformsOf(index))
		}
	}
	img, err := desc.Image()
	if err != nil {
		return nil, nil, reg.explain(ctx, err)
	}
	raw, err := img.RawManifest()
	if err != nil {
		return nil, nil, reg.explain(ctx, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, nil, sandbox.Wrap(sandbox.Invalid, err, "the image's manifest cannot be read")
	}
	return raw, manifest, checkManifest(reg.repo.String(), manifest)
}

func hasPlatform(index *v1.IndexManifest, want v1.Platform) bool {
	for _, m := range index.Manifests {
		if m.Platform == nil || m.Platform.Satisfies(want) {
			return true
		}
	}
	return false
}

func platformsOf(index *v1.IndexManifest) string {
	var names []string
	for _, m := range index.Manifests {
		if m.Platform != nil && len(names) < 20 {
			names = append(names, m.Platform.String())
		}
	}
	return strings.Join(names, ", ")
}

// checkManifest refuses what cannot be pulled before anything is.
func checkManifest(what string, m *v1.Manifest) error {
	var total int64
	for _, l := range m.Layers {
		if l.Size < 0 || l.Size > pullMaxBytes {
			return sandbox.Errorf(sandbox.TooLarge, "the image %s has a layer of %d bytes", what, l.Size)
		}
		total += l.Size
		if !l.MediaType.IsLayer() {
			return sandbox.Errorf(sandbox.Unsupported, "%s is not an image of files: it has a layer of the kind %.100q", what, l.MediaType)
		}
		if l.Digest.Algorithm != "sha256" {
			return sandbox.Errorf(sandbox.Unsupported, "the image %s has the digest %.100q, which is not a sha256", what, l.Digest)
		}
	}
	switch {
	case m.Config.MediaType != types.OCIConfigJSON && m.Config.MediaType != types.DockerConfigJSON:
		return sandbox.Errorf(sandbox.Unsupported, "%s is not an image of files: its configuration is %.100q", what, m.Config.MediaType)
	case len(m.Layers) > layersMax:
		return sandbox.Errorf(sandbox.TooLarge, "the image %s has %d layers, more than %d", what, len(m.Layers), layersMax)
	case total > pullMaxBytes || m.Config.Size > configMax || m.Config.Size < 0:
		return sandbox.Errorf(sandbox.TooLarge, "the image %s has %d bytes of layers and %d of configuration, more than are accepted", what, total, m.Config.Size)
	}
	return nil
}

// pulled returns the record of a reference that means the digest already and is
// intact, and notes that it was looked at, by whom.
func (s *Store) pulled(ctx context.Context, ref ociname.Reference, digest v1.Hash, proof string) (*record, error) {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	rec := ix.pulled(ref)
	if rec == nil || rec.Pull.Asked != digest || !untouched(s.erofsPath(rec.Digest), rec) {
		return nil, nil
	}
	rec.Pull.CheckedAt = time.Now().UTC()
	rec.Pull.prove(proof)
	done := *rec
	return &done, s.writeIndex(ix)
}

// pulled returns the current record of a reference to a registry, or nil.
func (ix *index) pulled(ref ociname.Reference) *record {
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Current && r.Pull != nil && r.Pull.Reference == reference.RepositoryName(ref)+reference.Identifier(ref) {
			return r
		}
	}
	return nil
}

// pullManifest fetches and unpacks an image and makes it one of the store.
func (s *Store) pullManifest(ctx context.Context, reg *registry, ref ociname.Reference, p pulledImage, opts PullOptions) (*record, error) {
	room, err := s.room(p.manifest)
	if err != nil {
		return nil, err
	}
	work, err := s.workDir(ctx)
	if err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { _ = work.Close() })
	undo.Add(func() { _ = os.RemoveAll(work.Name()) }) // what stays, the next Open removes
	defer undo.Clean()

	configFile := filepath.Join(work.Name(), "config")
	if err := s.fetch(ctx, reg, p.manifest.Config, configFile, func(int64) {}); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(configFile)
	if err != nil {
		return nil, err
	}
	if p.config, err = v1.ParseConfigFile(bytes.NewReader(data)); err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "the image's configuration cannot be read")
	}
	if n := len(p.config.RootFS.DiffIDs); n != len(p.manifest.Layers) {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has %d layers, and its configuration speaks of %d", len(p.manifest.Layers), n)
	}
	config, err := runConfig(&p.config.Config)
	if err != nil {
		return nil, err
	}
	root, err := s.fetchLayers(ctx, reg, p, opts.Who.Workspace, room, work.Name(), opts.Progress)
	if err != nil {
		return nil, err
	}
	name, tag := reference.RepositoryName(ref), ref.Identifier()
	if _, ok := ref.(ociname.Digest); ok {
		tag = ""
	}
	now := time.Now().UTC()
	rec := record{
		Name: name, Tag: tag, Current: true, Config: config, Description: p.config.Config.Labels["org.opencontainers.image.description"], UpdatedAt: now,
		Pull: &pullRecord{Reference: name + reference.Identifier(ref), Asked: p.asked, CheckedAt: now},
	}
	if rec.Description = strings.ToValidUTF8(rec.Description, ""); len(rec.Description) > 200 {
		rec.Description = ""
	}
	if reg.proof != "" {
		rec.Pull.Private = true
		rec.Pull.prove(reg.proof)
	}
	if err := s.keepPulled(ctx, root, &rec, p); err != nil {
		return nil, err
	}
	for _, blob := range append(slices.Clone(p.manifest.Layers), p.manifest.Config) {
		// What stays is an extra name of a blob, which goes after a day.
		_ = os.Remove(s.pullPath(reg, blob.Digest))
	}
	return &rec, nil
}

// room refuses an image whose layers alone, as its manifest has them, are more than
// images may take or than is free, before any of them is fetched. It returns what
// they may be uncompressed. A registry that sends more than a layer's size is
// found out when that is fetched.
//
// Errors: TooLarge; Unavailable for what the disk has no room for at the moment.
func (s *Store) room(m *v1.Manifest) (int64, error) {
	var packed, missing int64
	for _, l := range m.Layers {
		packed += l.Size
		if _, err := os.Stat(s.blobPath(l.Digest)); err != nil {
			missing += l.Size
		}
	}
	if s.maxDisk > 0 && packed > s.maxDisk {
		return 0, sandbox.Errorf(sandbox.TooLarge, "the layers of the image are %s, and all images may take %s (images.max_disk)", showMiB(packed), showMiB(s.maxDisk))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", s.dir, err)
	}
	free := int64(st.Bavail)*st.Bsize - s.minFree
	if missing > free {
		e := sandbox.Errorf(sandbox.Unavailable, "the server's disk has no room for the image: it lacks %s of its layers, and %s may be used", showMiB(missing), showMiB(max(0, free)))
		e.RetryAfter = fullDiskRetry
		return 0, e
	}
	room := min(pullMaxBytes, max(0, free))
	if s.maxDisk > 0 {
		room = min(room, s.maxDisk)
	}
	return room, nil
}

func showMiB(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// fetchLayers fetches all layers, some at a time, and lays each over those before
// it as soon as it is there.
func (s *Store) fetchLayers(ctx context.Context, reg *registry, p pulledImage, owner sandbox.WorkspaceID, room int64, dir string, progress func(phase.Event)) (*made, error) {
	var mu sync.Mutex
	var done, total int64
	for _, l := range p.manifest.Layers {
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
	ready := make([]chan struct{}, len(p.manifest.Layers))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	var root *made
	group.Go(func() (err error) {
		root, err = s.unpack(ctx, p, owner, room, dir, ready, progress)
		return err
	})
	for i, l := range p.manifest.Layers {
		group.Go(func() error {
			if err := s.fetch(ctx, reg, l, layerFile(dir, i), count); err != nil {
				return err
			}
			close(ready[i])
			return nil
		})
	}
	return root, group.Wait()
}

// layerFile is where the layer with the number i waits to be unpacked.
func layerFile(dir string, i int) string { return filepath.Join(dir, "layer-"+strconv.Itoa(i)) }

// unpack lays an image's layers over each other as they become ready, at most room
// bytes of them, and writes the root filesystem. Its memory is the owner's.
func (s *Store) unpack(ctx context.Context, p pulledImage, owner sandbox.WorkspaceID, room int64, dir string, ready []chan struct{}, progress func(phase.Event)) (*made, error) {
	u, err := rootfs.NewUnpacker(ctx, s.scratch, owner, dir, rootfs.Limits{Bytes: room, Entries: pullEntries})
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
		if err := u.Layer(ctx, layerFile(dir, i), p.config.RootFS.DiffIDs[i]); err != nil {
			return nil, fmt.Errorf("layer %d, %s: %w", i+1, p.manifest.Layers[i].Digest, err)
		}
	}
	progress(phase.Event{Phase: phase.Writing, Message: "root filesystem"})
	root, err := u.Finish(ctx)
	return &made{Result: root}, err
}

// runConfig returns how an image wants to be run, as far as that makes sense.
func runConfig(c *v1.Config) (sandbox.ImageConfig, error) {
	out := sandbox.ImageConfig{Entrypoint: c.Entrypoint, Cmd: c.Cmd, User: c.User}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && !strings.ContainsRune(e, 0) {
			out.Env = append(out.Env, e)
		}
	}
	if c.WorkingDir != "" {
		out.WorkingDir = path.Join("/", c.WorkingDir)
	}
	for _, s := range append(append([]string{c.User, c.WorkingDir}, c.Entrypoint...), c.Cmd...) {
		if strings.ContainsRune(s, 0) || len(s) > 128<<10 {
			return out, sandbox.Errorf(sandbox.Invalid, "the image's configuration has a value that no program can be given: %.100q", s)
		}
	}
	for port := range c.ExposedPorts {
		number, protocol, _ := strings.Cut(port, "/")
		if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 && cmp.Or(protocol, "tcp") == "tcp" {
			out.ExposedPorts = append(out.ExposedPorts, uint16(n))
		}
	}
	slices.Sort(out.ExposedPorts)
	return out, nil
}
