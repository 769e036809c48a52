package gvisor

import (
	"cmp"
	"context"
	"io"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// CanRestore implements [driver.Checkpointer].
func (d *Driver) CanRestore(dir string) error {
	m, files, err := saved.Open(dir)
	if err != nil {
		return err
	}
	files.Close()
	return d.saves.CanRestore(m)
}

// Verify implements [driver.Checkpointer].
func (d *Driver) Verify(ctx context.Context, dir string) (memory, files error) {
	return saved.Verify(ctx, dir)
}

// OpenLayer implements [driver.Checkpointer].
func (d *Driver) OpenLayer(dir string) (io.ReadCloser, error) { return saved.OpenLayer(dir) }

// Restore implements [driver.Checkpointer].
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	if err := cmp.Or(launch.Check(spec), launch.CheckImage(spec.RootFS)); err != nil {
		return nil, err
	}
	m, files, err := saved.Open(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	if err := d.saves.CanRestore(m); err != nil {
		return nil, err
	}
	if err := fits(spec, m); err != nil {
		return nil, err
	}
	spec.MaxProcesses = m.MaxProcesses
	verified, stop := m.Verifying(ctx, files)
	defer stop()
	frame, err := d.frameOf(spec, m)
	if err != nil {
		return nil, err
	}
	return d.make(ctx, plan{
		spec: spec, layout: m.Layout, agent: d.host.paths.agents().Image(m.Agent), frame: frame, framed: m.Framed || m.Format == saved.FormatFramed,
		handover: m.Format >= saved.FormatHandover, platform: cmp.Or(m.Platform, platform.Systrap),
		begin: func(ctx context.Context, b *box) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				if verified() != nil {
					cancel() // gVisor may take for ever with damaged files
				}
			}()
			err := b.load(ctx, files)
			// gVisor's result for damaged memory is meaningless, whether it is an error or not.
			return cmp.Or(verified(), err)
		},
	})
}

// frameOf returns the path of the frame that a saved box began with; "" for none.
func (d *Driver) frameOf(spec driver.Spec, m saved.Manifest) (string, error) {
	if m.Frame != "" {
		return d.host.paths.agents().Image(m.Frame), nil
	}
	below, err := stack.ReadFile(spec.RootFS)
	if err != nil {
		return "", publicError(err, "root image %s", spec.RootFS)
	}
	if len(below) > 0 {
		return d.frame, nil // the first checkpoints of layers do not name it
	}
	return "", nil
}

// fits checks whether a box of the spec can be made from the checkpoint.
func fits(spec driver.Spec, m saved.Manifest) error {
	rootfs, err := saved.MarkImage(spec.RootFS)
	if err != nil {
		return publicError(err, "root image %s", spec.RootFS)
	}
	if rootfs != m.RootFS {
		return sandbox.InvalidField("rootfs", "this is not the image of the saved sandbox")
	}
	if spec.Resources.DiskBytes != m.Resources.DiskBytes {
		return sandbox.InvalidField("resources.disk", "a restored sandbox keeps its disk of %d bytes", m.Resources.DiskBytes)
	}
	return nil
}

// load loads the state in files into a new box.
func (b *box) load(ctx context.Context, files saved.Files) error {
	if err := b.gvisor.GiveLoopback(ctx); err != nil {
		return err
	}
	err := b.gvisor.Restore(ctx, files)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case control.IsRemote(err, "no space left on device"):
		return sandbox.Wrap(sandbox.DiskFull, err, "the host's disk is too full to restore the sandbox")
	case b.outOfMemory():
		return sandbox.InvalidField("resources.memory", "the saved state needs more memory than that")
	case control.IsRemote(err, ""), control.HungUp(err): // gVisor could not read the state, or crashed
		return sandbox.Wrap(sandbox.Unsupported, err, "the saved state is damaged")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox could not be restored")
}

// outOfMemory reports whether the kernel killed a process of the box for lack of memory.
func (b *box) outOfMemory() bool {
	if b.group == nil {
		return false
	}
	u, err := b.group.Usage()
	return err == nil && u.OOMKills > 0
}
