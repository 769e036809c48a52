package gvisor

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/hostmem"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// While its tree is read, a box may use a quarter of the host's free memory beyond its limit.
	// At most two trees are read at the same time.
	raiseShare  = 4
	raiseAtOnce = 2
	// lowerTimeout is how long a box may take to release unused memory.
	lowerTimeout = time.Minute
	lowerEvery   = 200 * time.Millisecond
	// slotWait bounds the wait of readSlotSoon.
	slotWait = 10 * time.Second
)

// raiseMemory raises the memory limit of a box: gVisor reads every file whole into its own memory
// when it copies a tree, and the kernel would kill guest processes for that. lowerMemory undoes it;
// after a crash, a later driver does.
func (b *box) raiseMemory() error {
	if b.group == nil {
		return nil
	}
	free, err := hostmem.Available()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.raises++
	if err := b.updateLocked(func(s *state) { s.Raised = true }); err != nil {
		return err
	}
	l := b.state.limits()
	l.MemoryBytes += free / raiseShare
	return b.group.Limit(l)
}

// lowerMemory begins to undo raiseMemory. Lowering a limit below the current use would kill guest
// processes, so gVisor releases unused memory first.
func (b *box) lowerMemory() {
	if b.group == nil {
		return
	}
	b.mu.Lock()
	raise, limit := b.raises, b.state.limits().MemoryBytes
	b.mu.Unlock()
	b.host.watchers.Go(func() {
		again := time.NewTicker(lowerEvery)
		defer again.Stop()
		for begin := time.Now(); ; {
			_ = b.gvisor.ReleaseMemory(b.host.life)
			u, err := b.group.Usage()
			// Memory that remains in excess is the guest's own; then the kernel kills its
			// processes.
			if (err == nil && u.MemoryBytes <= limit || time.Since(begin) > lowerTimeout) && b.lowered(raise) {
				return
			}
			select {
			case <-again.C:
			case <-b.ended:
				return
			case <-b.host.life.Done():
				return
			}
		}
	})
}

// lowered sets the original limit, and reports whether there is nothing more to do.
func (b *box) lowered(raise int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raises != raise {
		return true // it was raised again, and will be lowered after that
	}
	if b.group.Limit(b.state.limits()) != nil {
		return false
	}
	return b.updateLocked(func(s *state) { s.Raised = false }) == nil
}

// readSlot waits for one of the slots for reading trees with raised limits.
func (h *host) readSlot(ctx context.Context) (leave func(), err error) {
	select {
	case h.readers <- struct{}{}:
		return func() { <-h.readers }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// freeSlot takes a slot if one is free.
func (h *host) freeSlot() (leave func(), ok bool) {
	select {
	case h.readers <- struct{}{}:
		return func() { <-h.readers }, true
	default:
		return nil, false
	}
}

// readSlotSoon is readSlot for at most slotWait. Errors: [driver.ErrBusy] after that.
func (h *host) readSlotSoon(ctx context.Context) (leave func(), err error) {
	wait, stop := context.WithTimeout(ctx, slotWait)
	defer stop()
	leave, err = h.readSlot(wait)
	if err != nil && ctx.Err() == nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, driver.ErrBusy, "other sandboxes are being read; try again soon")
	}
	return leave, err
}
