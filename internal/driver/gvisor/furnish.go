package gvisor

import (
	"context"
	"path"
	"strconv"

	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// errBlank is the error of calls that need a root filesystem.
var errBlank = sandbox.Errorf(sandbox.Conflict, "the box has no root filesystem yet")

// Furnish implements [driver.Furnisher].
func (d *Driver) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (layers int, err error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	ctx, span := tracing.Start(ctx, "gvisor: furnish")
	defer func() { span.End(err) }()
	if err := launch.CheckImage(rootfs); err != nil {
		return 0, err
	}
	b, err := d.boxes.lockStarted(ctx, id)
	if err != nil {
		return 0, err
	}
	defer b.unlock()
	layers, err = b.furnish(ctx, rootfs)
	switch {
	case err == nil:
		return layers, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case b.hasEnded():
		return 0, b.endedError()
	}
	return 0, publicError(err, "mount the root filesystem of box %s", id)
}

// furnish mounts the layers of rootfs in the frame.
func (b *box) furnish(ctx context.Context, rootfs string) (int, error) {
	if !b.blank() {
		return 0, sandbox.Errorf(sandbox.Conflict, "box %s has a root filesystem", b.id)
	}
	mark, err := saved.MarkImage(rootfs)
	if err != nil {
		return 0, err
	}
	layers, err := stack.Open(rootfs)
	if err != nil {
		return 0, err
	}
	defer stack.Close(layers)
	// Recorded before it is done: after a crash in between, a later driver does not mistake the box for a
	// blank one.
	if err := b.update(func(s *state) { s.RootFS, s.Framed = mark, len(layers) == 1 }); err != nil {
		return 0, err
	}
	for i, f := range layers {
		if err := b.gvisor.MountImage(ctx, f, path.Join(agentimage.FrameLayers, strconv.Itoa(i))); err != nil {
			return 0, err
		}
	}
	return len(layers), nil
}
