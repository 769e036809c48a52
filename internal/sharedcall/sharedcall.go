// Package sharedcall shares work among callers who want the same at the same time, and ends it when none of them waits any more.
package sharedcall

import (
	"context"
	"sync"
)

// Group runs the work of a key once for all callers who wait for it. The zero value has no work. It is safe for concurrent use.
type Group[K comparable] struct {
	mu    sync.Mutex
	calls map[K]*call // in progress; guarded by mu
}

// call is work in progress.
type call struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed at its end
	err     error         // valid when done is closed
	waiting int           // the callers who wait, 0 for work that is ending; guarded by the group's mu
}

// Do runs work, or waits for the work of the key that is in progress, and returns its error. The context of the work has the values of the first
// caller's context, and ends when no caller waits any more. A caller who comes then waits for the end of that work, and runs work anew, so that
// the work of a key is never in progress twice. If ctx ends first, Do returns its cause at once.
func (g *Group[K]) Do(ctx context.Context, key K, work func(context.Context) error) error {
	for ctx.Err() == nil {
		c, joined := g.join(ctx, key, work)
		select {
		case <-c.done:
			if joined {
				return c.err
			}
		case <-ctx.Done():
			if joined {
				g.leave(c)
			}
		}
	}
	return context.Cause(ctx)
}

// join waits for the work of a key, which it starts if there is none. It reports false for work that is ending.
func (g *Group[K]) join(ctx context.Context, key K, work func(context.Context) error) (_ *call, joined bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		if c.waiting == 0 {
			return c, false
		}
		c.waiting++
		return c, true
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{cancel: cancel, done: make(chan struct{}), waiting: 1}
	if g.calls == nil {
		g.calls = map[K]*call{}
	}
	g.calls[key] = c
	go func() {
		defer cancel()
		c.err = work(ctx)
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
		close(c.done)
	}()
	return c, true
}

// leave ends the wait of a caller.
func (g *Group[K]) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.cancel()
	}
}
