package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/sandbox"
)

// undoTime is how long undoing a step of a failed create may take.
const undoTime = 10 * time.Second

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	if err := check(spec); err != nil {
		return nil, err
	}
	if spec.MaxProcesses == 0 {
		spec.MaxProcesses = driver.DefaultMaxProcesses
	}
	return d.make(ctx, plan{spec: spec, layout: layoutOf(spec), agent: d.agent})
}

// plan has everything that a box is made from.
type plan struct {
	spec   driver.Spec
	layout layout
	agent  string // path of the agent's image
	// begin starts the guest of a box that should run immediately; nil for a box to be started
	// later.
	begin func(ctx context.Context, b *box) error
}

// make makes the box of a plan. On an error nothing of it remains.
func (d *Driver) make(ctx context.Context, p plan) (driver.Handle, error) {
	b := d.newBox(p.spec.ID)
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	b.abort = abort
	if err := d.claim(b); err != nil {
		return nil, err
	}
	defer close(b.done)
	h, err := d.create(ctx, b, p)
	if err != nil {
		d.forget(b)
		return nil, publicError(ended(ctx, err), "create box %s", b.id)
	}
	if p.begin != nil {
		// Before the start, the agent cannot be distinguished from other processes: all of them may
		// be killed.
		setOOMScore(b.proc.pid, sentryOOMScore)
		d.noteHelper(b)
	}
	return h, nil
}

func (d *Driver) create(ctx context.Context, b *box, plan plan) (driver.Handle, error) {
	rootfs, err := markImage(plan.spec.RootFS)
	if err != nil {
		return nil, err
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
				d.cfg.Logger.Warn("the control group of a failed create could not be removed", "sandbox", b.id, "error", err)
			}
		})
	}
	p, err := d.launch(ctx, b, plan)
	if err != nil {
		return nil, err
	}
	undo.Add(func() {
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if err := p.killAndWait(wait); err != nil {
			d.cfg.Logger.Warn("the process of a failed create could not be ended", "sandbox", b.id, "error", err)
		}
		p.close()
		_ = removeLayers(d.layersDir(), b.id)
	})
	s := state{
		Handle:  handle{Version: handleVersion, PID: p.pid, Start: p.start, Boot: bootID()},
		Started: plan.begin != nil, Resources: plan.spec.Resources, MaxProcesses: plan.spec.MaxProcesses,
		GVisor: d.runtime, Layout: plan.layout, RootFS: rootfs, Agent: filepath.Base(plan.agent),
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
	d.adopt(b, p, s)
	return h, nil
}

// launch starts the box's process in its group. On an error nothing of it remains.
func (d *Driver) launch(ctx context.Context, b *box, plan plan) (p *process, err error) {
	spec := plan.spec
	rootfs, err := os.Open(spec.RootFS)
	if err != nil {
		return nil, err
	}
	defer rootfs.Close()
	agent, err := os.Open(plan.agent)
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	oci := ociSpec(spec, plan.agent, plan.layout)
	l := launch{
		id: b.id, dir: b.dir, root: d.cfg.RunDir, spec: oci, images: []*os.File{rootfs, agent},
		mounts: plan.layout.mounts(oci, spec.Resources, d.layersDir()), resources: spec.Resources,
	}
	if plan.layout.OnDisk {
		defer func() {
			if err != nil {
				_ = removeLayers(d.layersDir(), b.id)
			}
		}()
		if l.layers, err = plan.layout.createLayers(d.layersDir(), b.id); err != nil {
			return nil, err
		}
		defer closeAll(l.layers)
	}
	start := func(attr *syscall.SysProcAttr) (err error) {
		p, err = l.start(ctx, d.binary, attr)
		return err
	}
	if b.group == nil {
		err = start(&syscall.SysProcAttr{})
	} else {
		err = b.group.Start(start)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
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
