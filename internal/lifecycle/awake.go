package lifecycle

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Wakes notes whether calls made with its context resumed a paused sandbox.
type Wakes struct{ resumed, memoryLost atomic.Bool }

type wakesKey struct{}

// NoteWakes returns a context for calls into sandboxes, and where it is noted
// when one of them had to resume its sandbox. It is safe for concurrent use.
func NoteWakes(ctx context.Context) (context.Context, *Wakes) {
	w := &Wakes{}
	return context.WithValue(ctx, wakesKey{}, w), w
}

// Resumed reports whether a call has resumed its sandbox so far.
func (w *Wakes) Resumed() bool { return w.resumed.Load() }

// MemoryLost reports whether the sandbox was started anew from its files with that.
func (w *Wakes) MemoryLost() bool { return w.memoryLost.Load() }

// awake returns when the sandbox of b can be used, resuming it when it is paused
// and after waiting for what has the box for itself, and notes the activity.
// Many callers at once wait for one resume.
func (s *Service) awake(ctx context.Context, b *entry) error {
	b.Activity.At(time.Now())
	if !b.Busy() && b.View().Sandbox.State == sandbox.Running {
		return nil
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
	err := b.Exclusively(ctx, box.Resume, func() error { return s.resume(b, sandbox.MemoryPrefer) })
	if err != nil {
		return err
	}
	if w, ok := ctx.Value(wakesKey{}).(*Wakes); ok {
		w.resumed.Store(true)
		w.memoryLost.Store(b.View().Sandbox.MemoryLost != "")
	}
	b.Activity.At(time.Now())
	return nil
}
