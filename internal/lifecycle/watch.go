package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// watcher waits for boxes that end without a request, and ends their sandboxes.
type watcher struct {
	driver driver.Driver
	ender  *ender
	// lost decides about a sandbox whose box was lost with a cause: it ends, or goes back to a checkpoint.
	lost func(*box.Box, sandbox.Cause)
	dir  string // on whose disk boxes write; "" for not known
	work *background.Group
	log  *slog.Logger
}

// ended returns the cause if the agent does not answer because the box has ended.
func (w *watcher) ended(b *entry) (sandbox.Cause, bool) {
	const reported = time.Second // of its end, by the driver
	ctx, cancel := context.WithTimeout(b.Context(), reported)
	defer cancel()
	e, err := w.driver.Wait(ctx, b.ID)
	return box.Exit{Exit: e}.SandboxCause(), err == nil
}

// watchLater starts the watcher of a started box, which runs until the box ends or unwatch is
// called.
//
// Preconditions: b.mu is held, the sandbox's end is not recorded, and the box has no watcher.
func (w *watcher) watchLater(b *entry) {
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	b.unwatch = func() {
		cancel()
		<-done
	}
	b.Work.Add(1)
	if !w.work.Go(func() {
		defer b.Work.Done()
		defer cancel()
		defer close(done)
		w.watch(ctx, b)
	}) {
		b.Work.Done()
		cancel()
		close(done)
	}
}

// unwatch stops the watcher of a box, because the box is about to be ended on purpose.
func (w *watcher) unwatch(b *entry) {
	b.Lock()
	stop := b.unwatch
	b.unwatch = nil
	b.Unlock()
	if stop != nil {
		stop()
	}
}

// watch waits until a box ends without a request, and then ends its sandbox.
func (w *watcher) watch(ctx context.Context, b *entry) {
	ended, err := backoff.Retry(ctx, func() (e box.Exit, err error) {
		e.Exit, err = w.driver.Wait(ctx, b.ID)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return box.Exit{Gone: true}, nil
		}
		return e, err
	}, retry.Pauses(50*time.Millisecond, 5*time.Second), retry.Forever(), backoff.WithNotify(func(err error, _ time.Duration) {
		if ctx.Err() == nil {
			w.log.Error("cannot watch sandbox, trying again", "sandbox", b.ID, "error", err)
		}
	}))
	if err != nil || ctx.Err() != nil {
		return // its end was decided by somebody else, it is being paused, or the service closes
	}
	w.over(b, ended)
}

// over decides about the sandbox of a box that has ended without a request: it ends, or goes back to a checkpoint.
func (w *watcher) over(b *entry, ended box.Exit) {
	cause := w.causeOf(ended)
	switch pending := b.pendingEnd(); {
	case pending != nil:
		w.ender.endOrLog(b, *pending) // the box's end is its consequence
	case cause.Code != sandbox.CauseOOM && cause.Code != sandbox.CauseDiskFull && (ended.Lost || ended.Gone):
		w.lost(b.Box, cause)
	default:
		w.ender.endOrLog(b, cause)
	}
}

// pendingEnd returns the cause of an end that is not recorded yet, because the sandbox is being
// evicted or the record failed; nil for none.
func (b *entry) pendingEnd() *sandbox.Cause {
	if evicted := b.evicted.Load(); evicted != nil {
		return evicted
	}
	b.Lock()
	defer b.Unlock()
	return b.wanted
}

// noSpaceLeft is the free disk space in bytes below which a fault of a box is attributed to the
// full disk.
const noSpaceLeft = 64 << 20

// causeOf returns the cause for a box that ended without a request. gVisor ends with a fault if the
// guest writes while the disk is full.
func (w *watcher) causeOf(e box.Exit) sandbox.Cause {
	c := e.SandboxCause()
	if !e.Fault || c.Code != sandbox.CauseExited || w.dir == "" {
		return c
	}
	// Free inodes do not matter: a guest's write needs no inode of the host.
	if space, err := ballast.Free(w.dir); err != nil || space.Bytes >= noSpaceLeft {
		return c
	}
	return sandbox.Cause{Code: sandbox.CauseDiskFull, Message: sandbox.OneLine("the server's disk was full when it ended, and it could not write: " + c.Message)}
}
