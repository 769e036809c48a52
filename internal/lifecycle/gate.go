package lifecycle

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// waitersMax is how many requests of one workspace may wait for room.
	waitersMax = 100
	// roomPoll is how often the first who waits looks for room that came without news.
	roomPoll = time.Second
)

// gate lets sandboxes in: no more of a workspace in a minute than its quota says,
// those of a workspace who wait for room in the order in which they came, and
// workspaces that wait for room on the server by turns.
type gate struct {
	mu    sync.Mutex
	doors map[sandbox.WorkspaceID]*door // guarded by mu
	// full has the workspaces whose first in line finds the server full, the next to
	// come in first; guarded by mu.
	full []sandbox.WorkspaceID
	room broadcast.Broadcast // something may have made room
	shut chan struct{}       // closed when nobody may wait any more
	stop func()              // closes shut, once
}

// door is the gate of one workspace.
type door struct {
	creates *bucket // nil when nothing limits how many
	line    []*waiter
}

// bucket holds the creates that a workspace has left. It is no Limiter of package rate, which
// takes back less than was taken from it when others ask at the same time.
type bucket struct {
	perMinute, left float64
	at              time.Time // when that was left
}

// fill adds what has come since.
func (b *bucket) fill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.left = min(b.perMinute, b.left+b.perMinute*passed.Minutes())
		b.at = now
	}
}

// waiter is one who waits.
type waiter struct {
	count int // of sandboxes that it wants to bring in
}

func newGate() *gate {
	g := &gate{doors: map[sandbox.WorkspaceID]*door{}, shut: make(chan struct{})}
	g.stop = sync.OnceFunc(func() { close(g.shut) })
	return g
}

// door returns that of a workspace.
//
// Preconditions: g.mu is held.
func (g *gate) door(ws sandbox.WorkspaceID) *door {
	d := g.doors[ws]
	if d == nil {
		d = &door{}
		g.doors[ws] = d
	}
	return d
}

// tickets takes n of the creates that a workspace has in a minute, and returns a
// function that gives some of them back. Errors: QuotaExceeded.
func (g *gate) tickets(ws sandbox.WorkspaceID, n int, perMinute int64, now time.Time) (giveBack func(int), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if perMinute <= 0 {
		if d := g.doors[ws]; d != nil {
			d.creates = nil
		}
		return func(int) {}, nil
	}
	if int64(n) > perMinute {
		e := sandbox.Wrap(sandbox.QuotaExceeded, sandbox.ErrNeverFits, "the workspace's quota of %s is %d, and this alone needs %d", sandbox.LimitCreates, perMinute, n)
		e.RetryAfter = time.Minute
		return nil, e
	}
	d := g.door(ws)
	b := d.creates
	if b == nil || b.perMinute != float64(perMinute) {
		b = &bucket{perMinute: float64(perMinute), left: float64(perMinute), at: now}
		d.creates = b
	}
	b.fill(now)
	if b.left < float64(n) {
		// A moment more, so that it is there by then whatever was rounded.
		delay := time.Duration((float64(n)-b.left)/b.perMinute*float64(time.Minute)) + time.Microsecond
		e := sandbox.Errorf(sandbox.QuotaExceeded, "the workspace's quota of %s is %d, of which too few are left; this is possible in %s",
			sandbox.LimitCreates, perMinute, delay.Round(time.Millisecond))
		e.RetryAfter = delay
		return nil, e
	}
	b.left -= float64(n)
	return func(some int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		b.left = min(b.perMinute, b.left+float64(some))
	}, nil
}

// join puts w at the end of the line. Errors: QuotaExceeded when it is too long;
// Unavailable when nobody may wait any more.
func (g *gate) join(ws sandbox.WorkspaceID, w *waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped() {
		return errStopping()
	}
	d := g.door(ws)
	if len(d.line) >= waitersMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%d requests of the workspace wait for room in its quota, and no more may", waitersMax)
	}
	d.line = append(d.line, w)
	return nil
}

// stopped reports whether nobody may wait any more.
func (g *gate) stopped() bool {
	select {
	case <-g.shut:
		return true
	default:
		return false
	}
}

// leave takes w out of the line. When it was let in, its workspace has had its turn.
func (g *gate) leave(ws sandbox.WorkspaceID, w *waiter, in bool) {
	g.mu.Lock()
	d := g.doors[ws]
	d.line = slices.DeleteFunc(d.line, func(other *waiter) bool { return other == w })
	if in || len(d.line) == 0 {
		g.pass(ws)
	}
	g.mu.Unlock()
	g.room.Send()
}

// pass has a workspace wait for room on the server no more.
//
// Preconditions: g.mu is held.
func (g *gate) pass(ws sandbox.WorkspaceID) {
	g.full = slices.DeleteFunc(g.full, func(other sandbox.WorkspaceID) bool { return other == ws })
}

// refused notes why w, who is the first in line, was not let in.
func (g *gate) refused(ws sandbox.WorkspaceID, err error) {
	g.mu.Lock()
	waits, full := slices.Contains(g.full, ws), errors.Is(err, sandbox.ErrServerFull)
	switch {
	case full && !waits:
		g.full = append(g.full, ws)
	case !full && waits:
		g.pass(ws)
	}
	g.mu.Unlock()
	if waits && !full {
		g.room.Send() // others need not leave room for it
	}
}

// first reports whether nobody is before w, who may be nil for somebody who is not
// in the line.
func (g *gate) first(ws sandbox.WorkspaceID, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.doors[ws]
	return d == nil || len(d.line) == 0 || d.line[0] == w
}

// order has an admission of w, or of somebody who is not in the line, leave room for
// those who come first.
func (g *gate) order(a *sandbox.Admission, ws sandbox.WorkspaceID, w *waiter) {
	if !g.first(ws, w) {
		a.Refuse = sandbox.BehindOthers()
	}
	g.byTurns(a, ws)
}

// byTurns has an admission leave room on the server for the workspaces whose turn comes
// before that of ws.
func (g *gate) byTurns(a *sandbox.Admission, ws sandbox.WorkspaceID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.full {
		if other == ws {
			return
		}
		a.Ahead = append(a.Ahead, g.doors[other].line[0].count)
	}
}

// tidy forgets the workspaces of which nothing is to be remembered.
func (g *gate) tidy(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ws, d := range g.doors {
		if d.creates != nil {
			d.creates.fill(now)
		}
		if len(d.line) == 0 && (d.creates == nil || d.creates.left >= d.creates.perMinute) {
			delete(g.doors, ws)
		}
	}
}
