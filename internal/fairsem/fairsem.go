// Package fairsem has a semaphore whose places workspaces share fairly, for work of which a workspace may
// request much.
package fairsem

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// waitersMax is the number of callers of one workspace that may wait for a place: each
	// may be a sandbox with an image of its own, and many sandboxes are made at once.
	waitersMax = 1000
	// MaxWait bounds the time that a caller waits for a place.
	MaxWait = time.Hour
	// keepFree is the time for which a place is reserved for a workspace after its last request.
	keepFree = time.Hour
	// retryAfter is the delay suggested to refused callers.
	retryAfter = time.Minute
)

// Semaphore has a number of places. A workspace gets all of them only if no other has asked
// for a place lately. A place that becomes free goes to the workspace with the fewest places, and
// of several to the workspace that got none for the longest time, since it has waited. The callers
// of a workspace get places in order of arrival. Safe for concurrent use.
type Semaphore struct {
	places int
	brief  bool // see [NewBrief]

	mu      sync.Mutex
	asked   map[sandbox.WorkspaceID]time.Time // time of each workspace's last request, unless long ago; guarded by mu
	free    int                               // guarded by mu
	has     map[sandbox.WorkspaceID]int       // places in use; guarded by mu
	waiting []*waiter                         // in order of arrival; guarded by mu
	now     int64                             // the number of turns until now; guarded by mu
	turns   map[sandbox.WorkspaceID]int64     // of waiting workspaces: the number of the last turn, or of the first wait; guarded by mu
	lapse   *time.Timer                       // fires when a place need not be reserved any longer; guarded by mu
}

// waiter is a caller of Acquire that has no place yet.
type waiter struct {
	ws  sandbox.WorkspaceID
	got chan struct{} // closed when it has a place
}

// New returns a semaphore with that many places, for long work.
func New(places int) *Semaphore {
	s := &Semaphore{
		places: places, free: places, asked: map[sandbox.WorkspaceID]time.Time{}, has: map[sandbox.WorkspaceID]int{},
		turns: map[sandbox.WorkspaceID]int64{},
	}
	s.lapse = time.AfterFunc(keepFree, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.assign()
	})
	s.lapse.Stop()
	return s
}

// NewBrief returns a semaphore with that many places, for work of moments: a workspace that is alone gets all of them, because the
// next soon becomes free. The number of its callers must be limited otherwise.
func NewBrief(places int) *Semaphore {
	s := New(places)
	s.brief = true
	return s
}

// Used returns the number of places in use.
func (s *Semaphore) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places - s.free
}

// Waiting returns the number of callers that wait for a place.
func (s *Semaphore) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Acquire returns when the workspace has a place, which the caller must give back by
// release; release is idempotent. Acquire calls waits, unless nil, once when there is no place
// at the moment. The empty workspace is the server itself, for which no place is reserved.
// Errors: the context's; QuotaExceeded when too many callers of the workspace wait;
// Unavailable when no place became free within [MaxWait].
func (s *Semaphore) Acquire(ctx context.Context, ws sandbox.WorkspaceID, waits func()) (release func(), err error) {
	mine := &waiter{ws: ws, got: make(chan struct{})}
	s.mu.Lock()
	n := 0
	for _, w := range s.waiting {
		if w.ws == ws {
			n++
		}
	}
	if n >= waitersMax && !s.brief {
		s.mu.Unlock()
		e := sandbox.Errorf(sandbox.QuotaExceeded, "%d images or snapshots of the workspace are waiting to be made, which is the maximum", waitersMax)
		e.RetryAfter = retryAfter
		return nil, e
	}
	if n == 0 {
		s.take(ws)
	}
	s.waiting = append(s.waiting, mine)
	if ws != "" { // no place is reserved for the server's own work
		s.asked[ws] = time.Now()
	}
	s.assign()
	s.mu.Unlock()
	release = sync.OnceFunc(func() { s.giveBack(ws) })
	select {
	case <-mine.got:
		return release, nil
	default:
	}
	if waits != nil {
		waits()
	}
	over := time.NewTimer(MaxWait)
	defer over.Stop()
	select {
	case <-mine.got:
		return release, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-over.C:
		e := sandbox.Errorf(sandbox.Unavailable, "the server has other work, and no turn came within %s; try again", MaxWait)
		e.RetryAfter = retryAfter
		err = e
	}
	s.giveUp(mine)
	return nil, err
}

// giveUp removes a waiter, with the place that it may have got meanwhile.
func (s *Semaphore) giveUp(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.forget(w.ws)
	} else { // it got a place at this moment
		s.takeBack(w.ws)
	}
}

func (s *Semaphore) giveBack(ws sandbox.WorkspaceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeBack(ws)
}

// takeBack takes a place from the workspace and assigns the place anew.
//
// Preconditions: s.mu is held.
func (s *Semaphore) takeBack(ws sandbox.WorkspaceID) {
	s.free++
	if s.has[ws]--; s.has[ws] == 0 {
		delete(s.has, ws)
	}
	s.assign()
}

// assign gives the free places to waiters.
//
// Preconditions: s.mu is held.
func (s *Semaphore) assign() {
	maps.DeleteFunc(s.asked, func(_ sandbox.WorkspaceID, at time.Time) bool { return time.Since(at) > keepFree })
	most := s.places
	if len(s.asked) > 1 && !s.brief {
		most = max(1, s.places-1)
	}
	for s.free > 0 {
		next := -1
		for i, w := range s.waiting {
			if s.has[w.ws] < most && (next < 0 || s.before(w.ws, s.waiting[next].ws)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		w := s.waiting[next]
		s.waiting = slices.Delete(s.waiting, next, next+1)
		s.free--
		s.has[w.ws]++
		s.take(w.ws)
		s.forget(w.ws)
		close(w.got)
	}
	s.lapse.Stop()
	if s.free > 0 && len(s.waiting) > 0 { // a place is reserved for another workspace
		oldest := slices.MinFunc(slices.Collect(maps.Values(s.asked)), time.Time.Compare)
		s.lapse.Reset(time.Until(oldest) + keepFree + time.Nanosecond)
	}
}

// before reports whether a place goes to workspace a rather than to b.
//
// Preconditions: s.mu is held, and callers of both wait.
func (s *Semaphore) before(a, b sandbox.WorkspaceID) bool {
	return cmp.Or(cmp.Compare(s.has[a], s.has[b]), cmp.Compare(s.turns[a], s.turns[b])) < 0
}

// take makes a turn of the workspace the last turn.
//
// Preconditions: s.mu is held.
func (s *Semaphore) take(ws sandbox.WorkspaceID) {
	s.now++
	s.turns[ws] = s.now
}

// forget removes the turn of a workspace for which nobody waits.
//
// Preconditions: s.mu is held.
func (s *Semaphore) forget(ws sandbox.WorkspaceID) {
	if !slices.ContainsFunc(s.waiting, func(w *waiter) bool { return w.ws == ws }) {
		delete(s.turns, ws)
	}
}
