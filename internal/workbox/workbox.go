// Package workbox runs commands in boxes without a sandbox, and keeps the files that they leave
// as the layer of an image: installs of packages, instructions of Dockerfiles, files of
// snapshot builds.
package workbox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Host makes the boxes. lifecycle.Service implements it.
type Host interface {
	// OpenBox makes and starts a box for sb, which is never recorded, from an image's root
	// filesystem, and returns it when its agent answers. With plainTmp the files of /tmp are
	// part of the layer. After an error no part of the box remains.
	OpenBox(ctx context.Context, sb *sandbox.Sandbox, img *spec.Image, rootfs string, plainTmp bool) (*box.Box, error)
	// CloseBox destroys a box of OpenBox. The sweep destroys what cannot be destroyed now.
	CloseBox(b *box.Box)
}

// Networks says whether boxes can have a network. [network.Service] implements it.
type Networks interface {
	// Offered returns an error if this server cannot give boxes a network.
	Offered() error
}

// Images finds root filesystems.
type Images interface {
	// Resolve returns the image of a digest and the path of its root filesystem. Errors: NotFound.
	Resolve(ctx context.Context, digest string) (spec.Image, string, error)
}

// Holder keeps root filesystems from being removed.
type Holder interface {
	// Hold keeps the root filesystem of a digest from being removed until release is
	// called, or the server ends. Errors: NotFound.
	Hold(ctx context.Context, digest string) (release func(), err error)
}

// Maker makes work boxes. It is safe for concurrent use.
type Maker struct {
	host     Host
	networks Networks
	driver   driver.Driver
	images   Images
	holder   Holder // nil if this server keeps no layers
	// defaults are the resources of a box where its spec has 0.
	defaults sandbox.Resources
}

// NewMaker returns a maker of boxes with default resources. A nil holder keeps no layers: no box
// can be made.
func NewMaker(host Host, networks Networks, d driver.Driver, images Images, holder Holder, defaults sandbox.Resources) *Maker {
	return &Maker{host: host, networks: networks, driver: d, images: images, holder: holder, defaults: defaults}
}

// NetworkOffered returns an error if this server cannot give boxes a network.
func (m *Maker) NetworkOffered() error { return m.networks.Offered() }

// Snapshotter returns the driver's power to read the files that a box wrote. Errors: Unsupported.
func (m *Maker) Snapshotter() (driver.Snapshotter, error) {
	reader, ok := m.driver.(driver.Snapshotter)
	if !ok || !m.driver.Capabilities().Snapshot || m.holder == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server cannot keep the files of sandboxes: snapshots are not available")
	}
	return reader, nil
}

// Box is a box that no sandbox has. It has no row: a server that is killed leaves a box that the
// next server destroys. Its user closes it. Its commands are as hostile as in any sandbox.
type Box struct {
	maker   *Maker
	box     *box.Box
	base    spec.Image
	release func()          // of base, which must not be removed meanwhile
	sandbox sandbox.Sandbox // never recorded
	// Say, if set, gets every line that a tool writes.
	Say func(line string)
}

// Spec describes a work box. Zero values are the defaults.
type Spec struct {
	// Base is the digest of the root filesystem below it.
	Base    string
	Network bool
	// PlainTmp makes the files of /tmp part of the layer.
	PlainTmp bool
	// Env is added to the image's.
	Env map[string]string
	// Resources that are 0 are the maker's defaults.
	Resources sandbox.Resources
}

// WriteLayer runs work in a box and writes the files that it leaves as a layer. Errors: work's;
// into's; NotFound for the base; Unsupported.
func (m *Maker) WriteLayer(ctx context.Context, spec Spec, into io.Writer, work func(context.Context, *Box) error) error {
	reader, err := m.Snapshotter()
	if err != nil {
		return err
	}
	w, err := m.Open(ctx, spec)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := work(ctx, w); err != nil {
		return err
	}
	if err := w.forgetNetwork(ctx); err != nil {
		return err
	}
	if err := reader.WriteLayer(ctx, w.box.ID, into); err != nil {
		return fmt.Errorf("read the files of box %s: %w", w.box.ID, err)
	}
	return nil
}

// Open makes a work box whose agent answers.
func (m *Maker) Open(ctx context.Context, spec Spec) (*Box, error) {
	if spec.Network {
		if err := m.networks.Offered(); err != nil {
			return nil, err
		}
	}
	img, rootfs, err := m.images.Resolve(ctx, spec.Base)
	if err != nil {
		return nil, err
	}
	release, err := m.holder.Hold(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	id := sandbox.NewID()
	w := &Box{maker: m, base: img, release: release, sandbox: sandbox.Sandbox{
		ID: id, Name: "build", HostLabel: "build-" + string(id), Env: spec.Env, Resources: spec.Resources,
		Network: sandbox.Network{Enabled: spec.Network},
	}}
	for _, r := range quota.Fields {
		if n := r.Of(&w.sandbox.Resources); *n == 0 {
			*n = *r.Of(&m.defaults)
		}
	}
	if w.box, err = m.host.OpenBox(ctx, &w.sandbox, &img, rootfs, spec.PlainTmp); err != nil {
		release()
		return nil, err
	}
	return w, nil
}

// Close destroys the box.
func (w *Box) Close() {
	w.maker.host.CloseBox(w.box)
	w.release()
}

// Base returns the image that the box was made from.
func (w *Box) Base() *spec.Image { return &w.base }

// forgetNetwork removes the network, with the files that the agent wrote for it: the
// image is also for sandboxes without a network.
func (w *Box) forgetNetwork(ctx context.Context) error {
	if !w.sandbox.Network.Enabled {
		return nil
	}
	w.box.Link.Disconnect(true)
	if err := w.Files().Remove(ctx, agentapi.OperatorCA, false); err != nil && sandbox.CodeOf(box.AgentError(err)) != sandbox.FileNotFound {
		return w.Explain(ctx, err)
	}
	_, err := w.Files().WriteFile(ctx, agentapi.ResolvConf, strings.NewReader(""), agentapi.WriteOptions{Mode: 0o644})
	return w.Explain(ctx, err)
}

// Files returns the calls on the files of the box.
func (w *Box) Files() agentapi.Files { return w.box.Agent.Files }

// Run runs a command to its end and passes its output, of both streams, to output, which may be
// nil.
//
// Errors: Invalid or NotFound for a command that cannot be run; Unavailable when
// the box ended, saying why.
func (w *Box) Run(ctx context.Context, cmd agentapi.Command, output func([]byte)) (agentapi.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.box.Agent.Exec(ctx, cmd)
	if err != nil {
		return agentapi.Exit{}, w.Explain(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	for {
		frame, err := stream.Next()
		if err != nil {
			return agentapi.Exit{}, w.Explain(ctx, err)
		}
		switch frame.Type {
		case agentapi.FrameStdout, agentapi.FrameStderr:
			if output != nil {
				output(frame.Data)
			}
		case agentapi.FrameExit:
			return *frame.Exit, nil
		}
	}
}

// endNotice is how long the driver may take to notice the end of a box whose agent is gone.
const endNotice = 1500 * time.Millisecond

// Explain gives an error of the agent its code, and adds how the box ended if it did.
func (w *Box) Explain(ctx context.Context, err error) error {
	if err == nil || !box.LooksEnded(err) || ctx.Err() != nil {
		return box.AgentError(err)
	}
	wait, cancel := context.WithTimeout(ctx, endNotice)
	defer cancel()
	exit, werr := w.maker.driver.Wait(wait, w.box.ID)
	switch {
	case werr != nil:
		return box.AgentError(err)
	case exit.Cause == sandbox.CauseOOM:
		return sandbox.Errorf(sandbox.Unavailable, "it needs more than %s of memory", sandbox.ShowBytes(w.sandbox.Resources.MemoryBytes))
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the box in which it was made ended: %s", exit.Detail)
	}
}
