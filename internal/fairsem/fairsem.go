// Package fairsem has a semaphore that shares its places fairly between workspaces, for work that a single workspace
// could request without end.
package fairsem

import (
	"cmp"
	"context"
	"maps"
	"math"
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
	// keepFree is the time for which a place is reserved for a workspace after its last request. keepFreeBriefly is the time
	// with [NewBrief].
	keepFree        = time.Hour
	keepFreeBriefly = time.Minute
	// retryAfter is the delay suggested to refused callers.
	retryAfter = time.Minute
)

// Semaphore has a number of places. A workspace gets all of them only if no other has asked
// for a place lately. A place that becomes free goes to the workspace with the fewest places, and
// of several to the workspace that got none for the longest time, since it has waited. The callers
// of a workspace get places in order of arrival. Safe for concurrent use.
type Semaphore struct {
	places int
	keep   time.Duration // see keepFree
	most   int           // that many callers of a workspace may wait
	shares bool          // see [NewShared]

	mu      sync.Mutex
	lines   map[sandbox.WorkspaceID]*line // of workspaces that have a place, wait, or asked lately; guarded by mu
	free    int                           // guarded by mu; below 0 if Add took more than there are
	waiting int                           // callers of all lines; guarded by mu
	now     int64                         // the number of turns until now; guarded by mu
	lapse   *time.Timer                   // fires when a place need not be reserved any longer; guarded by mu
}

// line has the callers of a workspace. The semaphore's mu guards its fields.
type line struct {
	asked   time.Time // of the last request; long ago for the server's own
	has     int       // places in use
	turn    int64     // the number of the last turn, or of the first wait
	waiting []*waiter // in order of arrival
}

// waiter is a caller of Acquire that has no place yet.
type waiter struct {
	got chan struct{} // closed when it has a place
}

// New returns a semaphore with that many places, for long work.
func New(places int) *Semaphore { return newSemaphore(places, keepFree, waitersMax) }

// NewBrief returns a semaphore with that many places, for work of moments: a place is reserved for others only if one asked just
// now. The number of callers must be limited otherwise.
func NewBrief(places int) *Semaphore { return newSemaphore(places, keepFreeBriefly, math.MaxInt) }

// NewShared is [NewBrief] for places that are in use for long: a workspace gets at most twice as many as it leaves free, or to the server itself, which gives
// way, and its first whenever one is free. So a single workspace leaves a third of the places to others.
func NewShared(places int) *Semaphore {
	s := NewBrief(places)
	s.shares = true
	return s
}

func newSemaphore(places int, keep time.Duration, most int) *Semaphore {
	s := &Semaphore{places: places, keep: keep, most: most, free: places, lines: map[sandbox.WorkspaceID]*line{}}
	s.lapse = time.AfterFunc(keep, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.assign()
	})
	s.lapse.Stop()
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
	return s.waiting
}

// Acquire returns when the workspace has a place, which the caller must give back by
// release; release is idempotent. Acquire calls waits, unless nil, once when there is no place
// at the moment. The empty workspace is the server itself, for which no place is reserved.
// Errors: the context's; QuotaExceeded when too many callers of the workspace wait;
// Unavailable when no place became free within [MaxWait].
func (s *Semaphore) Acquire(ctx context.Context, ws sandbox.WorkspaceID, waits func()) (release func(), err error) {
	mine := &waiter{got: make(chan struct{})}
	s.mu.Lock()
	l := s.lines[ws]
	if l == nil {
		l = &line{}
		s.lines[ws] = l
	}
	if len(l.waiting) >= s.most {
		s.mu.Unlock()
		e := sandbox.Errorf(sandbox.QuotaExceeded, "%d images, snapshots or archived sandboxes of the workspace wait for their turn, which is the maximum", waitersMax)
		e.RetryAfter = retryAfter
		return nil, e
	}
	if len(l.waiting) == 0 {
		s.take(l)
	}
	l.waiting = append(l.waiting, mine)
	s.waiting++
	if ws != "" { // no place is reserved for the server's own work
		l.asked = time.Now()
	}
	s.assign()
	s.mu.Unlock()
	release = sync.OnceFunc(func() { s.giveBack(l) })
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
	s.giveUp(l, mine)
	return nil, err
}

// Add takes a place for a workspace that uses it already, even if none is free. release is idempotent.
func (s *Semaphore) Add(ws sandbox.WorkspaceID) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[ws]
	if l == nil {
		l = &line{}
		s.lines[ws] = l
	}
	l.has++
	s.free--
	return sync.OnceFunc(func() { s.giveBack(l) })
}

// giveUp removes a waiter, with the place that it may have got meanwhile.
func (s *Semaphore) giveUp(l *line, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		s.waiting--
	} else { // it got a place at this moment
		s.takeBack(l)
	}
}

func (s *Semaphore) giveBack(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeBack(l)
}

// takeBack takes a place from a line and assigns the place anew.
//
// Preconditions: s.mu is held.
func (s *Semaphore) takeBack(l *line) {
	s.free++
	l.has--
	s.assign()
}

// assign gives the free places to waiters.
//
// Preconditions: s.mu is held.
func (s *Semaphore) assign() {
	oldest := time.Now().Add(-s.keep) // one time for all that follows
	maps.DeleteFunc(s.lines, func(_ sandbox.WorkspaceID, l *line) bool {
		return l.has == 0 && len(l.waiting) == 0 && l.asked.Before(oldest)
	})
	for s.free > 0 && s.waiting > 0 {
		next := s.next(oldest)
		if next == nil {
			break
		}
		w := next.waiting[0]
		next.waiting[0] = nil
		next.waiting = next.waiting[1:]
		s.waiting--
		s.free--
		next.has++
		s.take(next)
		close(w.got)
	}
	s.lapse.Stop()
	if s.free > 0 && s.waiting > 0 { // a place is reserved for another workspace
		s.lapse.Reset(s.untilLapse(oldest))
	}
}

// asked returns the number of workspaces that asked since oldest.
//
// Preconditions: s.mu is held.
func (s *Semaphore) asked(oldest time.Time) (n int) {
	for _, l := range s.lines {
		if !l.asked.Before(oldest) {
			n++
		}
	}
	return n
}

// next returns the line that gets a free place, nil for none. Each workspace that asked since oldest has a place reserved.
//
// Preconditions: s.mu is held.
func (s *Semaphore) next(oldest time.Time) *line {
	asked := s.asked(oldest)
	var next *line
	for ws, l := range s.lines {
		if len(l.waiting) > 0 && l.has < s.share(ws, l, asked, oldest) && (next == nil || l.before(next)) {
			next = l
		}
	}
	return next
}

// share returns how many places a workspace may have while asked workspaces have asked since oldest.
//
// Preconditions: s.mu is held.
func (s *Semaphore) share(ws sandbox.WorkspaceID, l *line, asked int, oldest time.Time) int {
	most, others := s.places, asked
	if ws == "" || !l.asked.Before(oldest) {
		others--
	}
	if others > 0 {
		most = max(1, s.places-1)
	}
	if s.shares {
		free := s.free + l.has
		if own := s.lines[""]; own != nil && ws != "" {
			free += own.has
		}
		most = min(most, max(1, 2*free/3))
	}
	return most
}

// Lacking returns how many places the server itself must give back so that the callers that wait get theirs, as far as the shares of their workspaces permit.
func (s *Semaphore) Lacking() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	then := &Semaphore{places: s.places, shares: s.shares, free: s.free, lines: map[sandbox.WorkspaceID]*line{"": {}}, now: s.now}
	for ws, l := range s.lines {
		then.lines[ws] = &line{asked: l.asked, has: l.has, turn: l.turn, waiting: l.waiting}
	}
	own, oldest := then.lines[""], time.Now().Add(-s.keep)
	own.waiting = nil
	for given := 1; own.has > 0 && s.waiting > 0; given++ {
		own.has--
		then.free++
		if then.free < 1 {
			continue
		}
		if next := then.next(oldest); next != nil {
			next.waiting = next.waiting[1:]
			next.has++
			then.free--
			then.take(next)
			n = given
		}
	}
	return n
}

// untilLapse returns after how long a place need not be reserved any longer, for the first workspace that asked since oldest.
//
// Preconditions: s.mu is held.
func (s *Semaphore) untilLapse(oldest time.Time) time.Duration {
	first := s.keep
	for _, l := range s.lines {
		if !l.asked.Before(oldest) {
			first = min(first, l.asked.Sub(oldest))
		}
	}
	return first + time.Nanosecond
}

// before reports whether a place goes to line a rather than to b.
//
// Preconditions: the semaphore's mu is held, and callers of both wait.
func (a *line) before(b *line) bool {
	return cmp.Or(cmp.Compare(a.has, b.has), cmp.Compare(a.turn, b.turn)) < 0
}

// take makes a turn of a line the last turn.
//
// Preconditions: s.mu is held.
func (s *Semaphore) take(l *line) {
	s.now++
	l.turn = s.now
}
