package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// call is a call into a box that takes a while. It decides what a broken connection means. One
// goroutine at a time uses it.
type call struct {
	ctx    context.Context
	box    *box.Box
	handle driver.Handle // of the box when the call began
	saves  int64         // of the box when the connection was made, or later
}

// newCall begins a call into b.
func newCall(ctx context.Context, b *box.Box) *call {
	return &call{ctx: ctx, box: b, handle: b.View().Sandbox.Handle, saves: b.Saves()}
}

// newTransfer begins a call that transfers a file: it counts as activity, and the next save of
// the box waits for it. The caller calls end at least once.
func newTransfer(ctx context.Context, b *box.Box) (c *call, end func()) {
	release := b.Activity.Begin()
	b.Transfers.Begin()
	return newCall(ctx, b), sync.OnceFunc(func() {
		b.Transfers.End()
		release()
	})
}

// again returns nil if the call can be repeated: a save broke its connection, and the box still
// runs. Otherwise it returns the error for the caller, which replaces reason.
func (c *call) again(reason error) error {
	if c.ctx.Err() != nil || !box.LooksEnded(reason) || !c.saved() && c.box.Runs(c.handle) {
		return c.box.Explain(c.ctx, reason)
	}
	if err := c.box.Settled(c.ctx); err != nil {
		return err
	}
	c.saves = c.box.Saves()
	sb := c.box.Sandbox()
	switch {
	case sb.State == sandbox.Destroying || sb.State.Ended():
		return box.StateError(&sb)
	case !c.box.Runs(c.handle):
		return sandbox.Wrap(sandbox.Unavailable, reason,
			"sandbox %q was paused or taken back to a checkpoint before the call had ended; try again", sb.Name)
	default:
		return nil
	}
}

// explain gives an error of a connection that a save caused its code. Every save breaks a tunnel, which leads through the agent.
func (c *call) explain(err error, tunnel bool) error {
	var timeout net.Error
	switch {
	case err == nil, err == io.EOF, errors.As(err, &timeout) && timeout.Timeout():
		return err
	case tunnel && c.saved() || !c.box.Runs(c.handle):
		return sandbox.Wrap(sandbox.Unavailable, err,
			"sandbox %q was saved, paused or taken back to a checkpoint while the connection was open; try again", c.box.View().Sandbox.Name)
	default:
		return err
	}
}

// saved reports whether the box is being saved, or was since the connection was made.
func (c *call) saved() bool { return c.box.SavedSince(c.saves) }

// broken is again for a call that cannot be repeated, because a part of its input is gone. nil
// stays nil.
func (c *call) broken(reason error) error {
	if reason == nil {
		return nil
	}
	if err := c.again(reason); err != nil {
		return err
	}
	return sandbox.Wrap(sandbox.Unavailable, reason,
		"sandbox %q was saved for a checkpoint or a fork before the transfer had ended; try again", c.box.View().Sandbox.Name)
}
