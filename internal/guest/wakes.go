package guest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Wakes reports whether calls made with its context resumed a paused sandbox. It is safe for
// concurrent use.
type Wakes struct{ resumed, memoryLost atomic.Bool }

type wakesKey struct{}

// NoteWakes returns a context for calls into sandboxes, and the Wakes that records whether a
// call with that context resumed its sandbox.
func NoteWakes(ctx context.Context) (context.Context, *Wakes) {
	w := &Wakes{}
	return context.WithValue(ctx, wakesKey{}, w), w
}

// Resumed reports whether a call has resumed its sandbox so far.
func (w *Wakes) Resumed() bool { return w.resumed.Load() }

// MemoryLost reports whether a call resumed a sandbox without its memory, from its files.
func (w *Wakes) MemoryLost() bool { return w.memoryLost.Load() }

// awake waits until the sandbox of b is provisioned, resumes it with wake if it is paused, waits for
// the operation that has the box, and notes the activity. Many callers at once wait for the same
// resume.
func (g *Calls) awake(ctx context.Context, b *box.Box, wake func(context.Context, *box.Box) error) error {
	b.Activity.At(time.Now())
	if !b.Busy() && b.View().Sandbox.State == sandbox.Running {
		return nil
	}
	if err := provisioned(ctx, b); err != nil {
		return err
	}
	if err := b.Settled(ctx); err != nil {
		return err
	}
	sb := b.Sandbox()
	switch sb.State {
	case sandbox.Running:
		return nil
	case sandbox.Paused, sandbox.Pausing, sandbox.Resuming:
	default:
		return box.StateError(&sb)
	}
	if err := wake(ctx, b); err != nil {
		return err
	}
	if w, ok := ctx.Value(wakesKey{}).(*Wakes); ok {
		w.resumed.Store(true)
		w.memoryLost.Store(b.View().Sandbox.MemoryLost != "")
	}
	b.Activity.At(time.Now())
	return nil
}

// provisioned waits until the sandbox of b is no longer provisioning.
func provisioned(ctx context.Context, b *box.Box) error {
	for v := b.View(); v.Sandbox.State == sandbox.Provisioning; v = b.View() {
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-b.Context().Done():
			if b.View() == v {
				return box.ErrClosed
			}
		}
	}
	return nil
}
