package prepare

import (
	"sync"

	"github.com/modbox/modbox/internal/image/phase"
)

// reporter passes the events of a task to the progress function of a request: in their order, one
// call at a time, and without a lock, so that the function may call the service.
type reporter struct {
	progress func(phase.Event) // nil for none

	mu      sync.Mutex
	queue   []phase.Event // guarded by mu
	calling bool          // a goroutine calls progress until the queue is empty; guarded by mu
	stopped bool          // guarded by mu
	idle    *sync.Cond    // on mu; calling has become false
}

func newReporter(progress func(phase.Event)) *reporter {
	r := &reporter{progress: progress}
	r.idle = sync.NewCond(&r.mu)
	return r
}

// add queues an event. The caller calls flush when it holds no lock.
func (r *reporter) add(e phase.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress != nil && !r.stopped {
		r.queue = append(r.queue, e)
	}
}

// flush passes on the queued events, unless another goroutine does that already.
func (r *reporter) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calling {
		return
	}
	r.calling = true
	defer func() { // also after a panic
		r.calling = false
		r.idle.Broadcast()
	}()
	for len(r.queue) > 0 {
		e := r.queue[0]
		r.queue = r.queue[1:]
		r.call(e)
	}
}

// call calls progress without the lock, which its caller holds.
func (r *reporter) call(e phase.Event) {
	r.mu.Unlock()
	defer r.mu.Lock()
	r.progress(e)
}

// stop drops the queued events and returns when no call is under way. No call comes after it.
func (r *reporter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue, r.stopped = nil, true
	for r.calling {
		r.idle.Wait()
	}
}
