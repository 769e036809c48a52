package lifecycle

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// exit describes how a box ended by itself.
type exit struct {
	driver.Exit
	// gone says that the driver does not know the box any more.
	gone bool
}

func (e exit) cause() sandbox.Cause {
	switch {
	case e.gone:
		return sandbox.Cause{Code: sandbox.CauseExited, Message: "its processes are gone"}
	case e.Cause == sandbox.CauseOOM:
		return sandbox.Cause{Code: sandbox.CauseOOM, Message: detail("it used more memory than its limit", e.Detail)}
	default:
		return sandbox.Cause{Code: sandbox.CauseExited, Message: detail("it ended by itself", e.Detail)}
	}
}

// endedItself says how a box ended whose agent does not answer, if that is why.
func (s *Service) endedItself(b *entry) (sandbox.Cause, bool) {
	const reported = time.Second // of its end, by the driver
	ctx, cancel := context.WithTimeout(b.Context(), reported)
	defer cancel()
	e, err := s.driver.Wait(ctx, b.ID)
	return exit{Exit: e}.cause(), err == nil
}

func detail(what, more string) string {
	if more == "" {
		return what
	}
	return sandbox.OneLine(what + ": " + more)
}

// watchLater has a started box watched in the background, until its end or unwatched.
//
// Preconditions: b.mu is held, the sandbox's end was not decided, and nobody watches it.
func (s *Service) watchLater(b *entry) {
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	b.unwatch = func() {
		cancel()
		<-done
	}
	b.Work.Add(1)
	if !s.work.Go(func() {
		defer b.Work.Done()
		defer cancel()
		defer close(done)
		s.watch(ctx, b)
	}) {
		b.Work.Done()
		cancel()
		close(done)
	}
}

// unwatch ends the watcher of a box, so that its end means nothing.
func (s *Service) unwatch(b *entry) {
	b.Lock()
	stop := b.unwatch
	b.unwatch = nil
	b.Unlock()
	if stop != nil {
		stop()
	}
}

// watch waits for a started box to end by itself, and then ends its sandbox.
func (s *Service) watch(ctx context.Context, b *entry) {
	ended, err := backoff.Retry(ctx, func() (e exit, err error) {
		e.Exit, err = s.driver.Wait(ctx, b.ID)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return exit{gone: true}, nil
		}
		return e, err
	}, retry.Pauses(50*time.Millisecond, 5*time.Second), retry.Forever(), backoff.WithNotify(func(err error, _ time.Duration) {
		if ctx.Err() == nil {
			s.log.Error("cannot watch sandbox, trying again", "sandbox", b.ID, "error", err)
		}
	}))
	if err != nil || ctx.Err() != nil {
		return // its end was decided by somebody else, it is being paused, or the service closes
	}
	cause := s.causeOf(ended)
	switch pending := b.pendingEnd(); {
	case pending != nil:
		s.endOrLog(b, *pending) // the box's end is its consequence
	case cause.Code == sandbox.CauseExited && (ended.Lost || ended.gone):
		s.automatic.Lost(b.Box, cause)
	default:
		s.endOrLog(b, cause)
	}
}

// pendingEnd returns the cause of an end that no row has yet, because the sandbox is being evicted
// or its end could not be recorded; nil for none.
func (b *entry) pendingEnd() *sandbox.Cause {
	if evicted := b.evicted.Load(); evicted != nil {
		return evicted
	}
	b.Lock()
	defer b.Unlock()
	return b.wanted
}

// noSpaceLeft is the free space in bytes below which a fault of a box means that it could not
// write its files.
const noSpaceLeft = 64 << 20

// causeOf returns the cause of a box that ended by itself. While the disk is full gVisor
// ends with a fault when the guest writes.
func (s *Service) causeOf(e exit) sandbox.Cause {
	c := e.cause()
	if !e.Fault || c.Code != sandbox.CauseExited || s.saved.Dir() == "" {
		return c
	}
	// Free inodes do not matter: a guest's write needs no inode of the host.
	if space, err := ballast.Free(s.saved.Dir()); err != nil || space.Bytes >= noSpaceLeft {
		return c
	}
	return sandbox.Cause{Code: sandbox.CauseDiskFull, Message: sandbox.OneLine("the server's disk was full when it ended, and it could not write: " + c.Message)}
}
