package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// undoTime is how long undoing a step of a failed create may take.
const undoTime = 10 * time.Second

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (_ driver.Handle, err error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	ctx, span := tracing.Start(ctx, "gvisor: create")
	defer func() { span.End(err) }()
	if err := launch.Check(spec); err != nil {
		return nil, err
	}
	if spec.MaxProcesses == 0 {
		spec.MaxProcesses = driver.DefaultMaxProcesses
	}
	return d.createOn(ctx, spec, d.platform)
}

// createOn makes a box on a platform from a checked spec.
func (d *Driver) createOn(ctx context.Context, spec driver.Spec, on platform.Name) (driver.Handle, error) {
	p := plan{spec: spec, layout: layer.Of(spec), agent: d.agent, handover: !d.forwards, platform: on}
	if blank := spec.RootFS == ""; blank {
		p.frame = d.frame
	} else if below, err := stack.ReadFile(spec.RootFS); err != nil {
		return nil, publicError(err, "create box %s", spec.ID)
	} else if len(below) > 0 || spec.PlainTmp { // over a root with an empty /tmp, gVisor mounts a file system in memory
		p.frame, p.framed = d.frame, len(below) == 0
	}
	return d.make(ctx, p)
}

// plan has everything that a box is made from.
type plan struct {
	spec   driver.Spec
	layout layer.Layout
	agent  string // path of the agent's image
	frame  string // path of the frame's image; "" unless the root is made by the agent
	framed bool   // see [state]
	// handover is whether the agent takes connections that are handed over.
	handover bool
	platform platform.Name
	// begin starts the guest of a box that should run immediately; nil for a box to be started
	// later.
	begin func(ctx context.Context, b *box) error
}

// make makes the box of a plan. On an error nothing of it remains.
func (d *Driver) make(ctx context.Context, p plan) (driver.Handle, error) {
	b := d.host.newBox(p.spec.ID)
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	b.abort = abort
	if err := d.boxes.claim(b); err != nil {
		return nil, err
	}
	defer close(b.done)
	h, err := d.create(ctx, b, p)
	if err != nil {
		d.boxes.forget(b)
		return nil, publicError(ended(ctx, err), "create box %s", b.id)
	}
	if p.begin != nil && p.platform == platform.Systrap { // see [box.protectInOOM]
		// Before the start, the agent cannot be distinguished from other processes: all of them may
		// be killed.
		process.SetScore(b.proc.PID, sentryScore)
		b.noteHelper()
	}
	return h, nil
}

func (d *Driver) create(ctx context.Context, b *box, plan plan) (driver.Handle, error) {
	var rootfs saved.ImageMark
	if plan.spec.RootFS != "" {
		var err error
		if rootfs, err = saved.MarkImage(plan.spec.RootFS); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(b.dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, sandbox.Errorf(sandbox.Exists, "there are remains of box %s", b.id)
	} else if err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { _ = os.RemoveAll(b.dir) })
	defer undo.Clean()
	if b.group != nil {
		if err := b.group.Create(limits(plan.spec.Resources, plan.spec.MaxProcesses)); err != nil {
			return nil, err
		}
		undo.Add(func() {
			wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			if err := b.group.Remove(wait); err != nil {
				d.host.logger.Warn("the control group of a failed create could not be removed", "sandbox", b.id, "error", err)
			}
		})
	}
	stderr, err := launch.NewStderr()
	if err != nil {
		return nil, err
	}
	undo.Add(func() { stderr.Close() })
	p, err := launch.Box{
		Spec: plan.spec, Dir: b.dir, Root: d.host.paths.run, Agent: plan.agent, Frame: plan.frame, Layout: plan.layout, Layers: d.host.paths.layers(), Handover: plan.handover,
		Platform: plan.platform, Stderr: stderr,
	}.Start(ctx, d.binary, b.group)
	if err != nil {
		return nil, err
	}
	undo.Add(func() {
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if err := p.KillAndWait(wait); err != nil {
			d.host.logger.Warn("the process of a failed create could not be ended", "sandbox", b.id, "error", err)
		}
		p.Close()
		_ = d.host.paths.layers().Remove(b.id)
	})
	s := state{
		Handle:  handle{Version: handleVersion, PID: p.PID, Start: p.Start, Boot: process.BootID()},
		Started: plan.begin != nil, Resources: plan.spec.Resources, MaxProcesses: plan.spec.MaxProcesses,
		GVisor: d.saves.GVisor, Layout: plan.layout, RootFS: rootfs, Agent: filepath.Base(plan.agent), Framed: plan.framed,
		Handover: plan.handover,
	}
	if plan.platform != platform.Systrap {
		s.Platform = plan.platform
	}
	if plan.frame != "" {
		s.Frame = filepath.Base(plan.frame)
	}
	if err := s.write(b.dir); err != nil {
		return nil, err
	}
	if plan.begin != nil {
		if err := plan.begin(ctx, b); err != nil {
			return nil, err
		}
	}
	h, err := s.Handle.encode()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	b.stderr = stderr
	b.adopt(p, s)
	return h, nil
}

// limits returns the limits of the box's group. The guest's own limit of processes is in its spec;
// the group's limit is a backstop, because reaching it would end the box. gVisor needs a little
// over two host threads for a process of the guest.
func limits(r sandbox.Resources, maxProcesses int64) cgroup.Limits {
	const (
		threadsPerProcess = 3
		atLeast           = 8192
	)
	return cgroup.Limits{
		MemoryBytes: r.MemoryBytes,
		CPUMilli:    r.CPUMilli,
		Processes:   max(atLeast, maxProcesses*threadsPerProcess),
	}
}

// publicError gives an error of the host a code, unless it has one.
func publicError(err error, format string, args ...any) error {
	var coded *sandbox.Error
	switch {
	case err == nil, errors.As(err, &coded), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	err = fmt.Errorf(format+": %w", append(args, err)...)
	for _, short := range []error{unix.ENOSPC, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EDQUOT} {
		if errors.Is(err, short) {
			return sandbox.Wrap(sandbox.Unavailable, err, "the host is out of resources")
		}
	}
	return err
}
