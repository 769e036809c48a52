package lifecycle

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// turnsMax is how many of one workspace may wait for a place: each may be a
	// sandbox with an image of its own, of which many are made at once.
	turnsMax = 1000
	// turnsPatience is how long one waits for a place at most.
	turnsPatience = time.Hour
	// turnsMemory is how long a place is kept free for a workspace that asked for one.
	turnsMemory = time.Hour
)

// turns gives places for work that takes long to workspaces, fairly: of several
// places one workspace has not all unless it alone has asked lately, and a place
// that becomes free goes to the workspace that has the fewest, and among those to
// who has waited longest.
type turns struct {
	places int

	mu      sync.Mutex
	asked   map[sandbox.WorkspaceID]time.Time // when each asked last, lately; guarded by mu
	free    int                               // guarded by mu
	has     map[sandbox.WorkspaceID]int       // guarded by mu
	waiting []*turn                           // the longest first; guarded by mu
	lapse   *time.Timer                       // for when a place need not be kept free any longer; guarded by mu
}

// turn is one who waits.
type turn struct {
	ws  sandbox.WorkspaceID
	got chan struct{} // closed when it has a place
}

func newTurns(places int) *turns {
	t := &turns{places: places, free: places, asked: map[sandbox.WorkspaceID]time.Time{}, has: map[sandbox.WorkspaceID]int{}}
	t.lapse = time.AfterFunc(turnsMemory, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.hand()
	})
	t.lapse.Stop()
	return t
}

// take returns when the workspace has a place, which the caller must give back by
// release. It calls waits, unless nil, once when there is none at the moment.
// Errors: the context's; QuotaExceeded when too many of the workspace wait;
// Unavailable when none came for an hour.
func (t *turns) take(ctx context.Context, ws sandbox.WorkspaceID, waits func()) (release func(), err error) {
	mine := &turn{ws: ws, got: make(chan struct{})}
	t.mu.Lock()
	n := 0
	for _, w := range t.waiting {
		if w.ws == ws {
			n++
		}
	}
	if n >= turnsMax {
		t.mu.Unlock()
		e := sandbox.Errorf(sandbox.QuotaExceeded, "%d images or snapshots of the workspace wait to be made, and no more may", turnsMax)
		e.RetryAfter = diskRetry
		return nil, e
	}
	t.waiting = append(t.waiting, mine)
	if ws != "" { // the server's own work may wait
		t.asked[ws] = time.Now()
	}
	t.hand()
	t.mu.Unlock()
	release = sync.OnceFunc(func() { t.giveBack(ws) })
	select {
	case <-mine.got:
		return release, nil
	default:
	}
	if waits != nil {
		waits()
	}
	over := time.NewTimer(turnsPatience)
	defer over.Stop()
	select {
	case <-mine.got:
		return release, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-over.C:
		e := sandbox.Errorf(sandbox.Unavailable, "other images and snapshots are being made, and no turn came within %s; try again", turnsPatience)
		e.RetryAfter = diskRetry
		err = e
	}
	t.giveUp(mine)
	return nil, err
}

// giveUp has somebody wait no more.
func (t *turns) giveUp(w *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // it got one at this moment
		t.put(w.ws)
	}
}

func (t *turns) giveBack(ws sandbox.WorkspaceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(ws)
}

// put takes a place from the workspace and hands it on.
//
// Preconditions: t.mu is held.
func (t *turns) put(ws sandbox.WorkspaceID) {
	t.free++
	if t.has[ws]--; t.has[ws] == 0 {
		delete(t.has, ws)
	}
	t.hand()
}

// hand gives the places that are free to who is to have them.
//
// Preconditions: t.mu is held.
func (t *turns) hand() {
	maps.DeleteFunc(t.asked, func(_ sandbox.WorkspaceID, at time.Time) bool { return time.Since(at) > turnsMemory })
	most := t.places
	if len(t.asked) > 1 {
		most = max(1, t.places-1)
	}
	for t.free > 0 {
		next := -1
		for i, w := range t.waiting {
			if n := t.has[w.ws]; n < most && (next < 0 || n < t.has[t.waiting[next].ws]) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		w := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.free--
		t.has[w.ws]++
		close(w.got)
	}
	t.lapse.Stop()
	if t.free > 0 && len(t.waiting) > 0 { // it is kept for somebody
		oldest := slices.MinFunc(slices.Collect(maps.Values(t.asked)), time.Time.Compare)
		t.lapse.Reset(time.Until(oldest) + turnsMemory + time.Nanosecond)
	}
}
