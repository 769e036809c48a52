// Package workbox runs commands in boxes without a sandbox, and keeps the files that they leave
// as the layer of an image: installs of packages, instructions of Dockerfiles, files of
// snapshot builds.
package workbox

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// destroyTimeout bounds one attempt to destroy a box.
const destroyTimeout = 60 * time.Second

// Host makes boxes and describes them to the driver. It is safe for concurrent use.
type Host interface {
	// NewBox returns a box that no caller can find, which the sweep does not take for an orphan.
	NewBox(id sandbox.ID) *box.Box
	// Forget removes a box of NewBox.
	Forget(b *box.Box)
	// Spec describes the box of a sandbox to the driver.
	Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec
	// Stage is [driver.Stage] for a box that was admitted.
	Stage(ctx context.Context, ws sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (release func(), err error)
}

// Networks connects boxes to networks. [network.Service] implements it.
type Networks interface {
	// Offered returns an error if this server cannot give boxes a network.
	Offered() error
	// Plug gives a started box an interface.
	Plug(ctx context.Context, b *box.Box) error
}

// Environments configures agents. [environment.Service] implements it.
type Environments interface {
	// Agent returns the configuration for the agent of a sandbox that is made from an image.
	Agent(sb *sandbox.Sandbox, img *spec.Image) agentapi.Config
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

// Config are the settings of work boxes.
type Config struct {
	// Defaults are the resources of a box where its spec has 0.
	Defaults sandbox.Resources
	// StartTimeout bounds the time from the creation of a box until its agent is configured.
	StartTimeout time.Duration
}

// Deps are the parts that a maker uses. All but Holder and Owner must be set.
type Deps struct {
	Host         Host
	Networks     Networks
	Environments Environments
	Driver       driver.Driver
	Images       Images
	// Holder keeps the bases of boxes; without it no box can be made.
	Holder Holder
	// Owner has the shards of the ids of boxes; nil for all.
	Owner  *sandbox.Ownership
	Logger *slog.Logger
}

// Maker makes work boxes. It is safe for concurrent use.
type Maker struct {
	cfg Config
	Deps
}

// NewMaker returns a maker of boxes.
func NewMaker(cfg Config, deps Deps) *Maker { return &Maker{cfg: cfg, Deps: deps} }

// NetworkOffered returns an error if this server cannot give boxes a network.
func (m *Maker) NetworkOffered() error { return m.Networks.Offered() }

// Snapshotter returns the driver's power to read the files that a box wrote. Errors: Unsupported.
func (m *Maker) Snapshotter() (driver.Snapshotter, error) {
	reader, ok := m.Driver.(driver.Snapshotter)
	if !ok || !m.Driver.Capabilities().Snapshot || m.Holder == nil {
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
		if err := m.Networks.Offered(); err != nil {
			return nil, err
		}
	}
	img, rootfs, err := m.Images.Resolve(ctx, spec.Base)
	if err != nil {
		return nil, err
	}
	release, err := m.Holder.Hold(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	id := m.Owner.NewID()
	w := &Box{maker: m, base: img, release: release, sandbox: sandbox.Sandbox{
		ID: id, Name: "build", HostLabel: "build-" + string(id), Env: spec.Env, Resources: spec.Resources,
		Network: sandbox.Network{Enabled: spec.Network},
	}}
	for _, r := range quota.Fields {
		if n := r.Of(&w.sandbox.Resources); *n == 0 {
			*n = *r.Of(&m.cfg.Defaults)
		}
	}
	if w.box, err = m.start(ctx, &w.sandbox, &img, rootfs, spec.PlainTmp); err != nil {
		release()
		return nil, err
	}
	return w, nil
}

// start makes and starts a box for sb from an image's root filesystem, and returns it when its agent
// answers. After an error the box is destroyed.
func (m *Maker) start(ctx context.Context, sb *sandbox.Sandbox, img *spec.Image, rootfs string, plainTmp bool) (*box.Box, error) {
	spec := m.Host.Spec(sb, rootfs)
	spec.PlainTmp = plainTmp
	staged, err := m.Host.Stage(ctx, sb.Workspace, spec, "")
	if err != nil {
		return nil, fmt.Errorf("make work box: %w", err)
	}
	defer staged()
	b := m.Host.NewBox(sb.ID)
	undo := cleanup.Make(func() { m.Destroy(b) })
	defer undo.Clean()
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StartTimeout)
	defer cancel()
	if _, err := m.Driver.Create(ctx, spec); err != nil {
		return nil, fmt.Errorf("make work box: %w", err)
	}
	if err := m.Driver.Start(ctx, b.ID); err != nil {
		return nil, fmt.Errorf("start work box %s: %w", b.ID, err)
	}
	if sb.Network.Enabled {
		if err := m.Networks.Plug(ctx, b); err != nil {
			return nil, err
		}
	}
	cfg := m.Environments.Agent(sb, img)
	cfg.Main = nil
	if err := environment.Configure(ctx, b, cfg); err != nil {
		return nil, box.AgentError(err)
	}
	undo.Release()
	return b, nil
}

// Restore restores a saved state of sb in a box that no caller can find, without a network. After an
// error no part of the box remains.
func (m *Maker) Restore(ctx context.Context, saver driver.Checkpointer, sb *sandbox.Sandbox, rootfs, path string) (*box.Box, error) {
	spec := m.Host.Spec(sb, rootfs)
	spec.ID = m.Owner.NewID()
	staged, err := m.Host.Stage(ctx, sb.Workspace, spec, path)
	if err != nil {
		return nil, err
	}
	defer staged()
	b := m.Host.NewBox(spec.ID)
	if _, err := saver.Restore(ctx, spec, path); err != nil {
		b.Cancel()
		_ = b.Agent.Close() // does not fail
		m.Host.Forget(b)
		return nil, err
	}
	return b, nil
}

// Destroy destroys a box of Restore. If that fails, the sweep tries it again.
func (m *Maker) Destroy(b *box.Box) {
	b.Link.Disconnect(true)
	b.Cancel()
	_ = b.Agent.Close() // does not fail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), destroyTimeout)
	defer cancel()
	if err := m.Driver.Destroy(ctx, b.ID); err != nil {
		m.Logger.Error("work box not removed, trying again soon", "box", b.ID, "error", err)
	}
	m.Host.Forget(b)
}

// Close destroys the box.
func (w *Box) Close() {
	w.maker.Destroy(w.box)
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
	exit, werr := w.maker.Driver.Wait(wait, w.box.ID)
	switch {
	case werr != nil:
		return box.AgentError(err)
	case exit.Cause == sandbox.CauseOOM:
		return sandbox.Errorf(sandbox.Unavailable, "it needs more than %s of memory", sandbox.ShowBytes(w.sandbox.Resources.MemoryBytes))
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the box in which it was made ended: %s", exit.Detail)
	}
}
