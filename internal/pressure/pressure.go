// Package pressure pauses idle sandboxes while the machine is short of memory, so that sandboxes in use keep theirs.
//
// It pauses the sandbox that is idle for the longest time first, one after another, until enough memory is available.
// A paused sandbox has its memory on the disk and goes on at the next call.
package pressure

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/hostmem"
	"github.com/modbox/modbox/internal/sandbox"
)

// Host changes the state of boxes. It is safe for concurrent use.
type Host interface {
	// Boxes returns the boxes of all live sandboxes.
	Boxes() []*box.Box
	// PauseIdle pauses a running sandbox for a reason, which its events show, unless a command runs in it or idle
	// returns false: idle is asked again once nothing else can change the sandbox. It handles its own failures.
	PauseIdle(b *box.Box, why string, idle func(*sandbox.Sandbox) bool)
}

// Options of a [Reliever].
type Options struct {
	// Below is the number of bytes of available memory below which sandboxes are paused; not positive for never.
	Below int64
	// Idle is the time without use after which a sandbox counts as idle.
	Idle time.Duration
	// Interval is the time between two looks at the memory.
	Interval time.Duration
	// Available returns how many bytes of memory processes can get without swapping; nil for [hostmem.Available].
	Available func() (int64, error)
	Log       *slog.Logger
}

const (
	// The next pause begins when the last has ended, or after patience, so that a slow agent or a large memory
	// does not delay it. At most atOnce pauses run at the same time.
	patience = 500 * time.Millisecond
	atOnce   = 16
)

// Reliever pauses idle sandboxes.
type Reliever struct {
	host   Host
	opts   Options
	failed bool // the memory could not be read the last time, which the log says
	// tried has the time of the last attempt on live sandboxes: the next is not before they were idle for as long again.
	tried map[sandbox.ID]time.Time
	work  errgroup.Group
}

// New returns a reliever for the sandboxes of a host.
func New(host Host, opts Options) *Reliever {
	if opts.Available == nil {
		opts.Available = hostmem.Available
	}
	r := &Reliever{host: host, opts: opts, tried: map[sandbox.ID]time.Time{}}
	r.work.SetLimit(atOnce)
	return r
}

// Run looks at the memory until ctx ends, and returns when all pauses under way have ended.
func (r *Reliever) Run(ctx context.Context) {
	if r.opts.Below <= 0 {
		return
	}
	defer func() { _ = r.work.Wait() }() // which returns no errors
	ticker := time.NewTicker(r.opts.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.relieve(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// relieve pauses idle sandboxes until a quarter more than the least memory is available, so that the next sandbox
// that grows does not cause the next pause at once.
func (r *Reliever) relieve(ctx context.Context) {
	if !r.short(r.opts.Below) {
		return
	}
	for _, b := range r.idle(time.Now()) {
		if ctx.Err() != nil || !r.short(r.opts.Below+r.opts.Below/4) {
			return
		}
		r.tried[b.ID] = time.Now()
		done := make(chan struct{})
		r.work.Go(func() error {
			defer close(done)
			r.host.PauseIdle(b, "the machine is short of memory and nothing used it for "+r.opts.Idle.String(), func(sb *sandbox.Sandbox) bool {
				return r.isIdle(sb, time.Now())
			})
			return nil
		})
		select {
		case <-done:
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
}

// short reports whether less than enough bytes are available. It is false when that is not known.
func (r *Reliever) short(enough int64) bool {
	available, err := r.opts.Available()
	if err != nil && !r.failed {
		r.opts.Log.Error("available memory of the machine not known: no idle sandbox is paused", "error", err)
	}
	r.failed = err != nil
	return err == nil && available < enough
}

// idle returns the boxes of idle sandboxes, the longest idle first.
func (r *Reliever) idle(now time.Time) []*box.Box {
	type candidate struct {
		box  *box.Box
		used time.Time
	}
	var list []candidate
	tried := map[sandbox.ID]time.Time{}
	for _, b := range r.host.Boxes() {
		at, again := r.tried[b.ID]
		if again {
			tried[b.ID] = at
		}
		if sb := b.Sandbox(); r.isIdle(&sb, now) && now.Sub(at) >= r.opts.Idle {
			list = append(list, candidate{b, sb.LastActivityAt})
		}
	}
	r.tried = tried
	slices.SortFunc(list, func(a, b candidate) int { return a.used.Compare(b.used) })
	boxes := make([]*box.Box, len(list))
	for i, c := range list {
		boxes[i] = c.box
	}
	return boxes
}

// isIdle reports whether a sandbox runs and nothing used it for long enough. It is false for sandboxes whose own limits
// a pause would change: a time limit of pauses would end it earlier, and an idle timeout that ends it does not count
// while it is paused.
func (r *Reliever) isIdle(sb *sandbox.Sandbox, now time.Time) bool {
	t := sb.Timeouts
	return sb.State == sandbox.Running && now.Sub(sb.LastActivityAt) >= r.opts.Idle &&
		t.Paused == 0 && (t.Idle == 0 || t.OnIdle.Pauses())
}
