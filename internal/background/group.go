// Package background runs the goroutines of a service between its start and its end.
package background

import (
	"context"
	"sync"
)

// Group is the background work of a service. It takes work between Start and Close. All
// methods may be called concurrently.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	running bool // guarded by mu
	// work counts the goroutines; it grows only while running is true.
	work sync.WaitGroup
}

// New returns a group that takes no work before Start.
func New() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns the context of all background work. Cancel ends it.
func (g *Group) Context() context.Context { return g.ctx }

// Start lets the group take work, and reports false if it was started or canceled before.
func (g *Group) Start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running || g.ctx.Err() != nil {
		return false
	}
	g.running = true
	return true
}

// Running reports whether the group takes work.
func (g *Group) Running() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// Go runs f in a goroutine and reports true, or reports false if the group takes no work.
func (g *Group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running {
		return false
	}
	g.work.Go(f)
	return true
}

// Stop makes the group take no more work and reports whether it took work until now.
func (g *Group) Stop() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.running
	g.running = false
	return was
}

// Cancel ends the context of the work.
func (g *Group) Cancel() { g.cancel() }

// Wait returns when all work has ended, or with ctx's error. The caller has called Stop.
func (g *Group) Wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		g.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
