package lifecycle

import (
	"context"
	"errors"
	"log/slog"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
)

// provisioner takes recorded sandboxes to running, in the background.
type provisioner struct {
	prepare *prepare.Service
	starter *starter
	states  *states
	ender   *ender
	timers  *timers
	layers  Layers // nil for none
	events  *eventlog.Queue
	metrics *telemetry.Metrics
	work    *background.Group
	log     *slog.Logger
}

// provision takes a recorded sandbox to running, or ends it with the cause of the failure.
func (p *provisioner) provision(b *entry, makeRunning func(*entry) error) {
	defer func() { // after the failure is recorded: until then the sweeper must not take the sandbox for lost
		b.Lock()
		b.provisioning = false
		b.Unlock()
	}()
	err := makeRunning(b)
	b.made.End(err)
	if err == nil || b.Context().Err() != nil {
		return // it runs; or its end was decided, or the server closes: this work was canceled
	}
	cause := sandbox.Cause{Code: sandbox.CauseInternal, Message: "the server could not start it; its log says why"}
	var f *failure
	if errors.As(err, &f) {
		cause = f.cause
	}
	p.log.Warn("sandbox could not be started", "sandbox", b.ID, "error", err)
	p.ender.endOrLog(b, cause)
}

// makeRunning takes a sandbox from its row to a running box. After a failure the destroyer frees
// its resources.
func (p *provisioner) makeRunning(b *entry) error {
	img, rootfs, err := p.obtainImage(b)
	if err != nil {
		return err
	}
	if p.layers != nil && b.Sandbox().ImageDigest != img.Digest { // no row says yet that it is in use
		release, err := p.layers.Hold(b.Context(), img.Digest)
		if err != nil {
			return fail(sandbox.CauseImage, err, "its image was removed")
		}
		defer release()
	}
	if err := p.starter.startBox(b, &img, rootfs); err != nil {
		return err
	}
	if err := p.starter.probe(b); err != nil {
		return err
	}
	return p.states.recordRunning(b, img.Digest)
}

// launch starts provisioning of a recorded sandbox in the background and returns the sandbox.
func (p *provisioner) launch(b *entry, makeRunning func(*entry) error) sandbox.Sandbox {
	b.Lock()
	defer b.Unlock()
	sb := b.Sandbox()
	if sb.State != sandbox.Provisioning {
		return sb // somebody was quick to destroy it
	}
	p.timers.arm(b)
	// When the server closes at this moment, the next one ends the sandbox.
	b.Work.Add(1)
	b.provisioning = p.work.Go(func() {
		defer b.Work.Done()
		p.provision(b, makeRunning)
	})
	if !b.provisioning {
		b.Work.Done()
	}
	return sb
}

// obtainImage returns the image of a sandbox, with its packages, and the path of its root
// filesystem. It makes the image if it is not here.
func (p *provisioner) obtainImage(b *entry) (img spec.Image, rootfs string, err error) {
	sb := b.Sandbox()
	ref, who := sb.Image, registry.Puller{Workspace: sb.Workspace, Registry: sb.Registry}
	if sb.Snapshot != "" {
		ref, who = sb.ImageDigest, registry.Puller{} // access to the snapshot was checked before
	}
	progress := prepare.Events(b.ID, ref, p.events.TryAdd) // progress can be missed
	ctx := b.making()                                      // a task has its own timeout
	if err := p.metrics.Do(ctx, telemetry.Image, func(ctx context.Context) (err error) {
		img, rootfs, err = p.prepare.Ensure(ctx, ref, who, progress)
		return err
	}); err != nil {
		return img, "", fail(sandbox.CauseImage, err, "the image "+sb.Image+" could not be had")
	}
	if d := prepare.PackagesOf(&sb); !d.Empty() {
		if err := p.metrics.Do(ctx, telemetry.Packages, func(ctx context.Context) (err error) {
			img, rootfs, err = p.prepare.Install(ctx, sb.Workspace, &img, d, prepare.Reserved{Own: sb.Resources}, progress)
			return err
		}); err != nil {
			return img, "", fail(sandbox.CauseImage, err, "its packages could not be installed")
		}
	}
	return img, rootfs, nil
}
