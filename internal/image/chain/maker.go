package chain

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// Root is the root filesystem of a chain in a store.
type Root struct {
	Path    string
	Digests []string // its own and of all below it, the nearest first
	Files   int64    // the number of names in it
	// Layers are the digests of the compressed layers from which it was made.
	Layers []v1.Hash
	// Release allows that the root filesystem is removed when no image lies over it.
	Release func()
}

// New is a root filesystem that is to be one of a chain.
type New struct {
	ID     v1.Hash
	Files  rootfs.Result
	Below  []string
	Image  oci.Image
	Layers int    // how many of the image's layers the chain has
	Dir    string // has these layers, see [oci.LayerFile]
}

// Roots are the chains of a store. Both methods hold their result until its release.
type Roots interface {
	// Find returns the intact root filesystem of a chain; nil for none.
	Find(ctx context.Context, id v1.Hash) (*Root, error)
	// Keep adds a root filesystem to the store.
	Keep(ctx context.Context, made New) (*Root, error)
	// Lock keeps other processes and callers from work with the same name until unlock.
	Lock(ctx context.Context, work v1.Hash) (unlock func(), err error)
}

// Maker makes the root filesystems of images. It is safe for concurrent use.
type Maker struct {
	Roots   Roots
	Scratch *rootfs.Scratch
	// Least is the least size of the compressed layers of a chain; 0 is the default.
	Least int64
}

// Job is an image whose root filesystem is to be made.
type Job struct {
	Image  oci.Image
	Owner  sandbox.WorkspaceID // the memory counts for it
	Limits rootfs.Limits       // of all layers that are unpacked
	Dir    string              // for the results; has the layers, see [oci.LayerFile]
	// Ready waits until the file of a layer is complete, for layers in ascending order.
	Ready func(ctx context.Context, layer int) error
	// Writing is called before a root filesystem is written.
	Writing func()
}

// Result is a root filesystem of an image, with all below it.
type Result struct {
	rootfs.Result
	Below []string // the digests of those below; of Same if it is set
	// Same is the root filesystem of the chain of all layers, if the image has no further layers.
	Same *Root

	release cleanup.Cleanup
}

// Release ends the hold of the chains.
func (r *Result) Release() { r.release.Clean() }

// Make makes the root filesystem of an image, and the chains below it that the store does not have. The caller releases
// the result also after an error. Errors: as of [rootfs.Unpacker].
func (m *Maker) Make(ctx context.Context, job Job) (Result, error) {
	w := work{maker: m, Job: job}
	err := w.make(ctx)
	w.close()
	return w.result, err
}

// work is the work on an image.
type work struct {
	Job
	maker  *Maker
	result Result

	done     int   // the number of layers in root
	root     *Root // the chain so far; nil for none
	base     *rootfs.Stack
	unpacker *rootfs.Unpacker
	behind   bool // the unpacker does not have the files of root yet
	open     cleanup.Cleanup
}

func (w *work) close() { w.open.Clean() }

func (w *work) make(ctx context.Context) (err error) {
	w.unpacker, err = rootfs.NewUnpacker(ctx, w.maker.Scratch, w.Owner, w.Dir, w.Limits)
	if err != nil {
		return err
	}
	w.open.Add(w.unpacker.Close)
	layers, least := w.Image.Manifest.Layers, w.maker.Least
	if least == 0 {
		least = Least
	}
	for _, end := range ends(layers, least) {
		if w.root != nil && len(w.root.Digests) >= most {
			break // it was made from layers of other sizes
		}
		if err := w.chain(ctx, end); err != nil {
			return err
		}
	}
	if w.root != nil && w.done == len(layers) {
		w.result.Same, w.result.Below, w.result.Files = w.root, w.root.Digests[1:], w.root.Files
		return nil
	}
	for i := w.done; i < len(layers); i++ {
		if err := w.Ready(ctx, i); err != nil {
			return err
		}
		if err := w.apply(ctx, i); err != nil {
			return err
		}
	}
	w.result.Result, err = w.write(ctx, "root.erofs")
	if w.root != nil {
		w.result.Below = w.root.Digests
	}
	return err
}

// chain makes the root filesystem of the chain of the first layers, or takes it from the store.
func (w *work) chain(ctx context.Context, end int) error {
	for i := w.done; i < end; i++ { // the lock must not wait for a registry
		if err := w.Ready(ctx, i); err != nil {
			return err
		}
	}
	chainID := id(w.Image.Config.RootFS.DiffIDs[:end])
	if known, err := w.take(ctx, chainID, end); known || err != nil {
		return err
	}
	// The configuration only promises the ID, so that the layers are part of the name: an image with other layers, which
	// promises the same, keeps nobody waiting.
	unlock, err := w.maker.Roots.Lock(ctx, name(chainID, w.Image.Manifest.Layers[:end]))
	if err != nil {
		return err
	}
	defer unlock()
	if known, err := w.take(ctx, chainID, end); known || err != nil {
		return err
	}
	for i := w.done; i < end; i++ {
		if err := w.apply(ctx, i); err != nil {
			return err
		}
	}
	made, err := w.write(ctx, fmt.Sprintf("chain-%d.erofs", end))
	if err != nil {
		return err
	}
	root, err := w.maker.Roots.Keep(ctx, New{ID: chainID, Files: made, Below: w.below(), Image: w.Image, Layers: end, Dir: w.Dir})
	if err != nil {
		return err
	}
	w.result.release.Add(root.Release)
	return w.lieOver(root, end)
}

// take makes the next layers lie over the chain with an ID, and reports whether the store has that.
func (w *work) take(ctx context.Context, chainID v1.Hash, end int) (known bool, err error) {
	root, err := w.maker.Roots.Find(ctx, chainID)
	if err != nil || root == nil {
		return false, err
	}
	w.result.release.Add(root.Release)
	if err := w.check(ctx, root, end); err != nil {
		return false, err
	}
	w.behind = true
	return true, w.lieOver(root, end)
}

// check checks that the layers up to end are the layers of a chain: the configuration only promises the ID of a chain. The
// digests of the layers were checked when the layers were fetched.
func (w *work) check(ctx context.Context, root *Root, end int) error {
	for i := w.done; i < end; i++ {
		layer := w.Image.Manifest.Layers[i].Digest
		if len(root.Layers) == end && root.Layers[i] == layer {
			continue
		}
		if err := w.unpacker.Check(ctx, oci.LayerFile(w.Dir, i), w.Image.Config.RootFS.DiffIDs[i]); err != nil {
			return layerError(i, layer, err)
		}
	}
	return nil
}

// lieOver makes the next layers lie over a chain.
func (w *work) lieOver(root *Root, end int) (err error) {
	if w.base, err = rootfs.OpenStack(root.Path); err != nil {
		return err
	}
	w.open.Add(w.base.Close)
	w.root, w.done = root, end
	return nil
}

// apply applies a layer over the layers before it.
func (w *work) apply(ctx context.Context, i int) error {
	if w.behind {
		if err := w.unpacker.Over(ctx, w.base); err != nil {
			return err
		}
		w.behind = false
	}
	if err := w.unpacker.Layer(ctx, oci.LayerFile(w.Dir, i), w.Image.Config.RootFS.DiffIDs[i]); err != nil {
		return layerError(i, w.Image.Manifest.Layers[i].Digest, err)
	}
	return nil
}

func layerError(i int, digest v1.Hash, err error) error {
	return fmt.Errorf("layer %d, %s: %w", i+1, digest, err)
}

// write writes the layers that were applied since the chain so far.
func (w *work) write(ctx context.Context, name string) (rootfs.Result, error) {
	w.Writing()
	if w.root == nil {
		return w.unpacker.Write(ctx, name, nil)
	}
	return w.unpacker.Write(ctx, name, &rootfs.Base{Stack: w.base, Digests: w.root.Digests})
}

// below returns the digests of the chain so far.
func (w *work) below() []string {
	if w.root == nil {
		return nil
	}
	return slices.Clone(w.root.Digests)
}
