package lifecycle_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// images are the images of the tests.
type images struct {
	mu      sync.Mutex
	list    []spec.Image
	fail    error // of Resolve from inside provisioning; guarded by mu
	removed bool  // no image is found; guarded by mu
	// opening, when set, is called before a root filesystem is opened; guarded by mu.
	opening func()
	seen    int // calls of Resolve; guarded by mu
	// ensure makes an image that is not there; guarded by mu.
	ensure func(ctx context.Context, ref string, progress func(phase.Event)) error
	// unmade are the digests of missing images; guarded by mu.
	unmade map[string]bool
	// aged: Collect takes nothing for just made.
	aged bool
	// ownImages and ownLeft are the bytes of the images and of the build cache of every workspace;
	// guarded by mu.
	ownImages, ownLeft int64
	dir                string
	made               map[string]string // paths of what Commit made, by digest; guarded by mu
	// cached are digests of what was made, by their keys; guarded by mu.
	cached map[string]string
	// payers are the workspaces that had what is cached, layerBytes what that is said to
	// take; guarded by mu.
	payers     []sandbox.WorkspaceID
	belowBytes int64 // the size of what lies below snapshots, and counts with them
	layerBytes int64
	forgotten  sandbox.WorkspaceID // whose images were forgotten last; guarded by mu
	stale      string              // the reference that is; guarded by mu
	// held counts who holds a digest; guarded by mu.
	held map[string]int
}

const (
	plainID = sandbox.ImageID("00000000-0000-0000-0000-000000000001")
	readyID = sandbox.ImageID("00000000-0000-0000-0000-000000000002")
)

func newImages(dir string) *images {
	return &images{dir: dir, made: map[string]string{}, list: []spec.Image{
		{ID: plainID, Name: "modbox/base", Tag: "latest", IsDefault: true, Digest: "sha256:1"},
		{ID: readyID, Name: "modbox/web", Tag: "latest", Digest: "sha256:2", ReadinessPort: 8080},
		{
			ID: "00000000-0000-0000-0000-000000000003", Name: "modbox/big", Tag: "latest", Digest: "sha256:3",
			MemoryBytes: 1 << 40, TTL: time.Hour,
		},
		{ID: "00000000-0000-0000-0000-000000000004", Name: "modbox/other", Tag: "latest", Digest: "sha256:4"},
	}}
}

func (c *images) find(match func(*spec.Image) bool) (spec.Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.list, func(img spec.Image) bool { return match(&img) }); i >= 0 {
		return c.list[i], nil
	}
	return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "there is no such image")
}

func (c *images) Resolve(_ context.Context, ref string) (spec.Image, string, error) {
	c.mu.Lock()
	c.seen++
	err := c.fail
	c.mu.Unlock()
	if err != nil {
		return spec.Image{}, "", err
	}
	img, err := c.Lookup(context.Background(), ref)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unmade[img.Digest] {
		return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "it is not made")
	}
	if path, ok := c.made[img.Digest]; ok {
		return img, path, err
	}
	return img, "/nowhere/" + img.Digest, err
}

func (c *images) Planned(ctx context.Context, ref string) (spec.Image, error) {
	img, _, err := c.Resolve(ctx, ref)
	return img, err
}

func (c *images) Lookup(_ context.Context, ref string) (spec.Image, error) {
	c.mu.Lock()
	removed := c.removed
	c.mu.Unlock()
	if removed {
		return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "it was removed")
	}
	return c.find(func(img *spec.Image) bool { return ref == img.Name || ref == img.Ref() || ref == img.Digest })
}

func (c *images) Ensure(ctx context.Context, ref string, _ registry.Puller, progress func(phase.Event)) (spec.Image, string, error) {
	c.mu.Lock()
	ensure := c.ensure
	c.mu.Unlock()
	if ensure != nil {
		if err := ensure(ctx, ref, progress); err != nil {
			return spec.Image{}, "", err
		}
		img, err := c.Lookup(ctx, ref)
		if err != nil {
			return img, "", err
		}
		c.mu.Lock()
		delete(c.unmade, img.Digest)
		c.mu.Unlock()
	}
	return c.Resolve(ctx, ref)
}

func (c *images) Built(_ context.Context, _ sandbox.WorkspaceID, ref string) (spec.Image, error) {
	return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "nobody has built %q", ref)
}

func (c *images) ForgetBuilt(_ context.Context, ws sandbox.WorkspaceID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = ws
	return nil
}

func (c *images) Owned(sandbox.WorkspaceID) (images, left int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownImages, c.ownLeft, nil
}

func (c *images) EvictBuildCache(_ context.Context, _ sandbox.WorkspaceID, add int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ownLeft < add {
		return false, nil
	}
	c.ownLeft -= add
	return true, nil
}

func (c *images) Stale(ref string, _ registry.Puller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale == ref
}

func (c *images) Update(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, error) {
	img, _, err := c.Ensure(ctx, ref, who, progress)
	return img, err
}

func (c *images) Runtimes(context.Context) ([]spec.Runtime, error) { return nil, nil }

// Commit makes an image that is found by its digest alone. The layers of the fake
// driver hold everything, so the base does not matter.
func (c *images) Commit(_ context.Context, base string, layer io.Reader) (prepare.Layered, error) {
	data, err := io.ReadAll(layer)
	if err != nil {
		return prepare.Layered{}, err
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(append([]byte(base), data...)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[digest] == "" {
		path := filepath.Join(c.dir, digest+".tar")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return prepare.Layered{}, err
		}
		c.made[digest] = path
		c.list = append(slices.Clone(c.list), spec.Image{Digest: digest, SizeBytes: int64(len(data))})
	}
	return prepare.Layered{Digest: digest, SizeBytes: int64(len(data)), LayerBytes: int64(len(data)), FileCount: 1}, nil
}

func (c *images) ByID(_ context.Context, id sandbox.ImageID) (spec.Image, error) {
	return c.find(func(img *spec.Image) bool { return img.ID == id })
}

func (c *images) LookupFor(ctx context.Context, _ sandbox.WorkspaceID, ref string) (spec.Image, error) {
	return c.Lookup(ctx, ref)
}

func (c *images) List(context.Context) ([]spec.Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list), nil
}
