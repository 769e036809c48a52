package gvisor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// CanRestore implements [driver.Checkpointer].
func (d *Driver) CanRestore(dir string) error {
	m, files, err := openCheckpoint(dir)
	if err != nil {
		return err
	}
	closeAll(files)
	return d.restorable(m)
}

// Restore implements [driver.Checkpointer].
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	if err := check(spec); err != nil {
		return nil, err
	}
	m, files, err := openCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	if err := d.restorable(m); err != nil {
		return nil, err
	}
	if err := m.fits(spec); err != nil {
		return nil, err
	}
	spec.MaxProcesses = m.MaxProcesses
	verified, stop := m.verifying(ctx, files)
	defer stop()
	return d.make(ctx, plan{
		spec: spec, layout: m.Layout, agent: filepath.Join(d.agentsDir(), m.Agent),
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

// fits checks whether a box of the spec can be made from the checkpoint.
func (m manifest) fits(spec driver.Spec) error {
	rootfs, err := markImage(spec.RootFS)
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
func (b *box) load(ctx context.Context, files []*os.File) error {
	if err := giveLoopback(ctx, b.dir); err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = fdOf(f)
	}
	args := boot.RestoreOpts{HavePagesFile: true}
	err := call(ctx, saveRPC, b.dir, boot.ContMgrRestore, &args, nil, fds...)
	var remote remoteError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &remote) && strings.Contains(string(remote), "no space left on device"):
		return sandbox.Wrap(sandbox.DiskFull, err, "the host's disk is too full to restore the sandbox")
	case b.outOfMemory():
		return sandbox.InvalidField("resources.memory", "the saved state needs more memory than that")
	case errors.As(err, &remote), hungUp(err): // gVisor could not read the state, or crashed
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
