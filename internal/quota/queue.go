package quota

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// waitersMax is the number of requests of one workspace that may wait.
	waitersMax = 100
	// pollInterval is the interval at which the head of a workspace's queue tries again
	// although nothing woke it; pollsPerSecond bounds the polls of all heads together.
	pollInterval   = time.Second
	pollsPerSecond = 50
)

// queue is the admission queue: the waiting requests of a workspace are admitted in the order in
// which they came, and workspaces that wait for a full server take turns. Only the first request of
// each workspace, its head, ever tries. Safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	waiting map[sandbox.WorkspaceID][]*waiter // the longest first; guarded by mu
	// full has the workspaces whose head found the server full, the next to be admitted
	// first; guarded by mu.
	full []sandbox.WorkspaceID

	stop    chan struct{} // closed when nobody may wait any more
	stopped func()        // closes stop, once
}

// waiter is a request that waits.
type waiter struct {
	count int           // sandboxes that the request wants
	wake  chan struct{} // receives when the waiter is a head and should try; its buffer has a place for one signal
}

func newQueue() *queue {
	q := &queue{waiting: map[sandbox.WorkspaceID][]*waiter{}, stop: make(chan struct{})}
	q.stopped = sync.OnceFunc(func() { close(q.stop) })
	return q
}

// wait queues a request that was refused with err, and calls try whenever the request is the head
// of its workspace and capacity may be free. Errors: try's when waiting does not help; the last of
// try's after r.MaxWait; QuotaExceeded when too many requests of the workspace wait; Unavailable
// when the server stops; the context's.
func (q *queue) wait(ctx context.Context, r Request, err error, try func(*waiter) error) error {
	w := &waiter{count: r.Count, wake: make(chan struct{}, 1)}
	if err := q.join(r.Workspace, w); err != nil {
		return err
	}
	admitted := false
	defer func() { q.leave(r.Workspace, w, admitted) }()
	deadline := time.NewTimer(r.MaxWait)
	defer deadline.Stop()
	for {
		var poll <-chan time.Time // of a head only: all others are woken when they become the head
		if q.isHead(r.Workspace, w) {
			if err = try(w); !passes(err) {
				admitted = err == nil
				return err
			}
			q.refused(r.Workspace, err)
			poll = time.After(q.pollInterval())
		}
		select {
		case <-w.wake:
		case <-poll:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-q.stop:
			return errStopping()
		}
	}
}

// join puts w at the end of its workspace's queue. Errors: QuotaExceeded when the queue is too
// long; Unavailable when nobody may wait any more.
func (q *queue) join(ws sandbox.WorkspaceID, w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.stop:
		return errStopping()
	default:
	}
	if len(q.waiting[ws]) >= waitersMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%d requests of the workspace wait for its quota already, the maximum; try again later", waitersMax)
	}
	q.waiting[ws] = append(q.waiting[ws], w)
	return nil
}

// leave removes w, and wakes the requests that may be admitted now.
func (q *queue) leave(ws sandbox.WorkspaceID, w *waiter, admitted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := slices.DeleteFunc(q.waiting[ws], func(other *waiter) bool { return other == w })
	q.waiting[ws] = list
	if len(list) == 0 {
		delete(q.waiting, ws)
	}
	if (admitted || len(list) == 0) && q.endTurn(ws) {
		q.wakeHeads()
	} else if len(list) > 0 {
		list[0].signal()
	}
}

// endTurn removes a workspace from the workspaces that wait for the server, and reports whether it
// was among them.
//
// Preconditions: q.mu is held.
func (q *queue) endTurn(ws sandbox.WorkspaceID) bool {
	n := len(q.full)
	q.full = slices.DeleteFunc(q.full, func(other sandbox.WorkspaceID) bool { return other == ws })
	return len(q.full) < n
}

// refused notes why the head of a workspace was not admitted.
func (q *queue) refused(ws sandbox.WorkspaceID, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if errors.Is(err, ErrServerFull) {
		if !slices.Contains(q.full, ws) {
			q.full = append(q.full, ws)
		}
	} else if q.endTurn(ws) {
		q.wakeHeads() // others need not leave capacity for it
	}
}

// wakeAll has the heads of all workspaces try again.
func (q *queue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeHeads()
}

// wakeHeads is wakeAll.
//
// Preconditions: q.mu is held.
func (q *queue) wakeHeads() {
	for _, list := range q.waiting {
		list[0].signal()
	}
}

// signal wakes the waiter, unless that is pending.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pollInterval returns the interval at which each head polls.
func (q *queue) pollInterval() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(pollInterval, time.Duration(len(q.waiting))*time.Second/pollsPerSecond)
}

// isHead reports whether no request is before w, which is nil for a request that does not wait.
func (q *queue) isHead(ws sandbox.WorkspaceID, w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.waiting[ws]
	return len(list) == 0 || list[0] == w
}

// order makes an admission of w, which is nil for a request that does not wait, leave capacity for
// the requests that come first.
func (q *queue) order(a *Admission, ws sandbox.WorkspaceID, w *waiter) {
	if !q.isHead(ws, w) {
		a.Refuse = BehindOthers()
	}
	q.takeTurns(a, ws)
}

// takeTurns makes an admission leave capacity on the server for the workspaces whose turn comes
// before the turn of ws.
func (q *queue) takeTurns(a *Admission, ws sandbox.WorkspaceID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, other := range q.full {
		if other == ws {
			return
		}
		a.Ahead = append(a.Ahead, q.waiting[other][0].count)
	}
}

// length returns the number of waiting requests of a workspace.
func (q *queue) length(ws sandbox.WorkspaceID) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting[ws])
}

// total returns the number of waiting requests.
func (q *queue) total() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range q.waiting {
		n += len(list)
	}
	return n
}

// waitingForServer returns the workspaces whose head found the server full, the next to be
// admitted first.
func (q *queue) waitingForServer() []sandbox.WorkspaceID {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.full)
}

// stoppingRetry is roughly the time that a restart takes.
const stoppingRetry = 5 * time.Second

// errStopping refuses a request that waits when the server stops.
func errStopping() error {
	e := sandbox.Errorf(sandbox.Unavailable, "the server is shutting down, and does not queue requests any more; try again")
	e.RetryAfter = stoppingRetry
	return e
}

// passes reports whether waiting may help against err.
func passes(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.RetryAfter > 0 && !errors.Is(err, ErrNeverFits)
}
